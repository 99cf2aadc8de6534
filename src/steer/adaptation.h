// Adaptation: a group's epochs, what its ranks tell each other at their ends, and what follows from it.
//
// An epoch ends with the collective that brings its bytes to a number that grows until epochs are long enough
// to say something; every rank counts the same. At its end each rank writes down what its connections have
// carried (take), and the ranks exchange these rows. At the end of the next epoch they decide on them
// (decide): all at the same collective, and from the same numbers. Where they have called different
// collectives, which they are told is an error, they are no longer at the same collective: they decide
// nothing any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "live/engine.h"
#include "steer/replanner.h"

namespace talweg::steer {

class Adaptation {
 public:
  Adaptation(int rank, cluster::Cluster network);

  // A collective starts. True when an epoch ends with it.
  bool count(const forest::Request& request);

  // The exchange: `row()` doubles of each rank, by rank.
  std::size_t row() const { return kHead + 2 * ranks_; }
  const double* own() const { return own_.data(); }
  double* all() { return all_.data(); }
  // This rank's row: what has been carried since it was asked last.
  void take(const std::vector<live::PeerStatistics>& statistics, std::int64_t now_ns);
  // Reads all(). True when plans should be made for network() from now on.
  bool decide();
  // Ranks have counted different calls, as decide has found: they cannot decide alike any more.
  bool disagreed() const { return disagreed_; }

  const cluster::Cluster& network() const { return replanner_.network(); }
  double gain() const { return gain_; }
  // How often the plans have changed; what is planned differently must not be taken for the same.
  std::uint64_t changes() const { return changes_; }

 private:
  static constexpr std::size_t kHead = 2;  // of a row: the time, a digest of what was counted
  const std::size_t rank_;
  const std::size_t ranks_;
  Replanner replanner_;
  std::int64_t enough_ = std::int64_t{4} << 20;  // bytes, for an epoch
  std::int64_t bytes_ = 0;                       // of this epoch
  forest::Request largest_;                      // of this epoch
  forest::Request decisive_;                     // the largest of the epoch that was exchanged
  std::int64_t largest_bytes_ = 0;
  std::vector<double> carried_, busy_;  // by peer, when taken last
  bool taken_ = false;
  std::vector<double> own_, all_;
  std::uint64_t counted_ = 0;  // a digest of all calls so far
  bool disagreed_ = false;
  double gain_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace talweg::steer
