#include "steer/adaptation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/collectives.h"
#include "base/fail.h"
#include "steer/plan_chooser.h"

namespace talweg::steer {

namespace {
constexpr double kShort = 0.1;  // seconds
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
// Calls may come to carry much more than before, and then rank 0 is to look up soon.
constexpr std::uint64_t kMostCalls = 64;
// That are planned ahead: what a step of a training job asks for, and more.
constexpr std::size_t kMostAhead = 16;

// How many calls bring `bytes`, if they are like the last ones.
std::uint64_t calls_for(std::int64_t bytes, std::int64_t carried, std::uint64_t calls) {
  if (carried == 0) return calls == 0 ? 1 : kMostCalls;
  const double each = static_cast<double>(carried) / static_cast<double>(std::max<std::uint64_t>(calls, 1));
  return static_cast<std::uint64_t>(
      std::clamp(std::ceil(static_cast<double>(bytes) / each), 1., 1. * kMostCalls));
}
}  // namespace

TrafficMeter::TrafficMeter(int ranks)
    : carried_(static_cast<std::size_t>(ranks)), busy_(static_cast<std::size_t>(ranks)) {}

std::vector<double> TrafficMeter::take(const std::vector<live::PeerStatistics>& statistics) {
  std::vector<double> report(2 * carried_.size());
  // What was carried before the first epoch, handshakes and all that, says nothing.
  const bool first = !std::exchange(taken_, true);
  for (const live::PeerStatistics& peer : statistics) {
    const auto p = static_cast<std::size_t>(peer.rank);
    const auto carried = static_cast<double>(peer.acked_bytes);
    const double bytes = carried - std::exchange(carried_[p], carried);
    const double busy = peer.busy_seconds - std::exchange(busy_[p], peer.busy_seconds);
    if (first) continue;
    report[2 * p] = bytes;
    report[2 * p + 1] = busy;
  }
  return report;
}

Adaptation::Adaptation(cluster::Cluster network, Background& background)
    : ranks_(static_cast<std::size_t>(network.workers())),
      background_(background),
      replanner_(std::make_shared<const Replanner>(std::move(network))) {}

void Adaptation::count(const forest::Request& request) {
  if (facts(request.op).knows != Knows::all) return;
  const std::int64_t bytes =
      std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0}) * request.element_size;
  bytes_ += bytes;
  const auto known = std::ranges::find(requests_, request);
  if (known != requests_.end()) {
    std::rotate(requests_.begin(), known, known + 1);
  } else {
    if (requests_.size() == kMostAhead) requests_.pop_back();
    requests_.insert(requests_.begin(), request);
  }
  if (bytes <= largest_bytes_) return;
  largest_bytes_ = bytes;
  largest_ = request;
}

bool Adaptation::hear(int rank, std::span<const double> report, std::int64_t now_ns) {
  const auto from = static_cast<std::size_t>(rank);
  if (report.size() != 2 * ranks_ || from >= heard_.size() || heard_[from]) return false;
  for (const double value : report)
    if (!std::isfinite(value)) return false;
  heard_[from] = true;
  --missing_;
  epoch_.time_ns = now_ns;
  for (std::size_t to = 0; to < ranks_; ++to) {
    const double bytes = report[2 * to], busy = report[2 * to + 1];
    if (bytes <= 0 || busy <= 0) continue;
    epoch_.edges.push_back({rank, static_cast<int>(to), bytes, busy});
    longest_ = std::max(longest_, busy);
  }
  if (missing_ == 0) decide();
  return true;
}

void Adaptation::decide() {
  // First the one that counts, whatever else has been called since.
  std::vector<forest::Request> requests{decisive_};
  std::ranges::copy_if(requests_, std::back_inserter(requests),
                       [&](const forest::Request& request) { return request != decisive_; });
  task_.emplace(background_.start([last = replanner_, epoch = std::move(epoch_),
                                   requests = std::move(requests)](forest::WorkLimit& limit) {
    auto next = std::make_shared<Replanner>(*last);
    Decision decision;
    if (next->observe(epoch, requests.front(), &limit))
      decision.ahead = std::make_shared<const PlannedAhead>(plan_ahead(next->network(), requests, &limit));
    decision.replanner = std::move(next);
    return decision;
  }));
}

NetworkWatch::Turn Adaptation::turn(std::uint64_t call) {
  Turn turn;
  const std::uint64_t calls = call - began_;
  const bool over = bytes_ >= enough_ || !asked_;
  if (!over) {
    turn.next = call + calls_for(enough_ - bytes_, bytes_, calls);
    return turn;
  }
  // All wait for each of rank 0's words: it says few, and is no more than twice as late for it.
  if (missing_ > 0 || !decided()) {
    if (!late_since_) late_since_ = call;
    turn.next = call + std::clamp<std::uint64_t>(call - *late_since_, 1, kMostCalls);
    return turn;
  }
  late_since_.reset();
  if (task_) {
    if (const auto decision = std::exchange(task_, std::nullopt)->take()) {
      replanner_ = decision->replanner;
      turn.ahead = decision->ahead;
      if (turn.ahead) turn.rates = rates_of(network());
    }
    if (longest_ > 0 && longest_ < kShort && enough_ < kMostBytes) enough_ *= 2;
  }
  asked_ = true;
  heard_.assign(ranks_, false);
  missing_ = ranks_;
  epoch_ = {};
  longest_ = 0;
  decisive_ = largest_;
  turn.next = call + calls_for(enough_, bytes_, calls);
  turn.report = true;
  bytes_ = largest_bytes_ = 0;
  began_ = call;
  return turn;
}

std::vector<double> rates_of(const cluster::Cluster& network) {
  std::vector<double> rates;
  for (const cluster::Link& link : network.links) rates.push_back(link.capacity.bits_per_second);
  for (const cluster::CapacityGroup& group : network.groups) rates.push_back(group.capacity.bits_per_second);
  return rates;
}

cluster::Cluster with_rates(cluster::Cluster network, const std::vector<double>& rates) {
  if (rates.size() != network.links.size() + network.groups.size())
    throw_error(ErrorCode::corrupted, "rates of {} links and groups, expected {} and {}", rates.size(),
                network.links.size(), network.groups.size());
  auto rate = rates.begin();
  for (cluster::Link& link : network.links) link.capacity.bits_per_second = *rate++;
  for (cluster::CapacityGroup& group : network.groups) group.capacity.bits_per_second = *rate++;
  return network;
}

}  // namespace talweg::steer
