// ResultGroup: whether the results of a job go to all of its workers at once, by a multicast group, or to
// each by itself, as they do at first.
//
//   ResultGroup group(workers);
//   group.says(worker, wire::GroupWord::joined, now_ns);     // what workers say, over their connections
//   if (now_ns >= group.next_time_ns() && group.probe(now_ns)) ...      // send probes to the group
//   if (group.by_group()) ...                                // all of them have heard one
//
// A network may carry multicast to some of its hosts and not to others, and nobody says so. So the group is
// used once every worker has said that a probe, as long as the largest result, has come to it, and no longer
// than until one says that too much does not come. It is not tried again: what a network has filtered once it
// filters again.
//
// Pure: no socket, no clock, no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "wire/switch_message.h"

namespace talweg::protocol {

class ResultGroup {
 public:
  enum class State : std::uint8_t {
    joining,   // some worker has not said that it has joined
    probing,   // some worker has not said that it has heard a probe
    by_group,  // all have
    off,       // for good
  };
  // Probes are lost, too, and a network takes a while to know who has joined: they are repeated after this
  // time, then after twice as long each time, up to the longest.
  static constexpr std::int64_t kFirstNs = 20'000'000, kLongestNs = 1'000'000'000;
  static constexpr int kProbes = 14;  // about ten seconds

  explicit ResultGroup(std::size_t workers) : said_(workers, Said::nothing) {}

  void says(std::size_t worker, wire::GroupWord word, std::int64_t now_ns);
  // True: probes are to be sent. Of a time that has come; it may be that no more are sent, and it is off.
  bool probe(std::int64_t now_ns);
  std::int64_t next_time_ns() const { return next_ns_; }  // that never comes: none is to be sent

  State state() const { return state_; }
  bool by_group() const { return state_ == State::by_group; }
  // Once it is off: by whom, who did not hear it or has lost it, in ascending order. Was it ever used?
  const std::vector<std::uint16_t>& deaf() const { return deaf_; }
  bool was_used() const { return was_used_; }

 private:
  enum class Said : std::uint8_t { nothing, joined, heard };
  bool all(Said what) const;
  void turn_off();

  std::vector<Said> said_;
  State state_ = State::joining;
  bool was_used_ = false;
  int probes_ = 0;
  std::int64_t next_ns_ = std::numeric_limits<std::int64_t>::max();
  std::vector<std::uint16_t> deaf_;
};

}  // namespace talweg::protocol
