#include "steer/adaptation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/collectives.h"
#include "wire/signature.h"

namespace talweg::steer {

namespace {
constexpr double kShort = 0.1;  // seconds
constexpr int kInexactBits = 64 - std::numeric_limits<double>::digits;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
}  // namespace

Adaptation::Adaptation(int rank, cluster::Cluster network)
    : rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(network.workers())),
      replanner_(std::move(network)),
      carried_(ranks_, 0),
      busy_(ranks_, 0),
      own_(row(), 0),
      all_(row() * ranks_, 0) {}

bool Adaptation::count(const forest::Request& request) {
  // Only what all ranks are in with all counts known, and where there is something to count.
  if (!goes_up(request.op) && !goes_down(request.op)) return false;
  const std::int64_t bytes =
      std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0}) * request.element_size;
  bytes_ += bytes;
  std::vector<std::int64_t> words = request.counts;
  words.insert(words.end(), {static_cast<std::int64_t>(counted_), static_cast<std::int64_t>(request.op),
                             request.root, request.element_size});
  counted_ = wire::layout_digest(words.data(), words.size());
  if (bytes > largest_bytes_) {
    largest_bytes_ = bytes;
    largest_ = request;
  }
  return bytes_ >= enough_;
}

void Adaptation::take(const std::vector<live::PeerStatistics>& statistics, std::int64_t now_ns) {
  std::fill(own_.begin(), own_.end(), 0);
  own_[0] = static_cast<double>(now_ns);
  own_[1] = static_cast<double>(counted_ >> kInexactBits);
  // What was carried before the first epoch, handshakes and all that, says nothing.
  const bool first = !std::exchange(taken_, true);
  for (const live::PeerStatistics& peer : statistics) {
    const auto p = static_cast<std::size_t>(peer.rank);
    const auto carried = static_cast<double>(peer.acked_bytes);
    const double bytes = carried - std::exchange(carried_[p], carried);
    const double busy = peer.busy_seconds - std::exchange(busy_[p], peer.busy_seconds);
    if (first) continue;
    own_[kHead + 2 * p] = bytes;
    own_[kHead + 1 + 2 * p] = busy;
  }
  decisive_ = largest_;
  bytes_ = largest_bytes_ = 0;
}

bool Adaptation::decide() {
  for (std::size_t r = 1; r < ranks_; ++r)
    if (all_[r * row() + 1] != all_[1]) disagreed_ = true;
  if (disagreed_) return false;
  TrafficEpoch epoch;
  epoch.time_ns = static_cast<std::int64_t>(all_[0]);
  for (std::size_t from = 0; from < ranks_; ++from) {
    for (std::size_t to = 0; to < ranks_; ++to) {
      const double* const pair = all_.data() + from * row() + kHead + 2 * to;
      if (pair[0] > 0 && pair[1] > 0)
        epoch.edges.push_back({static_cast<int>(from), static_cast<int>(to), pair[0], pair[1]});
    }
  }
  double length = 0;
  for (const EdgeTraffic& edge : epoch.edges) length = std::max(length, edge.busy);
  if (length > 0 && length < kShort && enough_ < kMostBytes) enough_ *= 2;
  const bool changed = replanner_.observe(epoch, decisive_);
  gain_ = replanner_.gain();
  if (changed) ++changes_;
  return changed;
}

}  // namespace talweg::steer
