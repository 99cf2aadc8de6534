#include "study/flow_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/at.h"

namespace talweg::study {
namespace {

// The least of the sorted values that at least `share` of them do not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

double took_seconds(const sim::FlowResult& flow) {
  return sim::seconds(flow.ended - flow.started);
}

}  // namespace

LoneFlow::LoneFlow(const cluster::Cluster& cluster, const sim::TransportOptions& transport)
    : cluster_(cluster), transport_(transport), workers_(cluster.workers()), leaving_(cluster.nodes.size()) {
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    leaving_[at(cluster.links[link].from)].push_back(static_cast<int>(link));
}

// Dijkstra's algorithm: as few workers as can be, then the least latency, then the fewest links.
void LoneFlow::find_routes(int from) {
  from_ = from;
  routes_.assign(cluster_.nodes.size(), {});
  const auto cost = [&](int node) {
    const Route& r = routes_[at(node)];
    return std::tuple(r.relays, r.latency, r.hops, node);
  };
  using Cost = std::tuple<std::int64_t, std::int64_t, std::int64_t, int>;
  std::priority_queue<Cost, std::vector<Cost>, std::greater<>> queue;
  routes_[at(from)].reached = true;
  queue.push(cost(from));
  while (!queue.empty()) {
    const Cost least = queue.top();
    queue.pop();
    const int node = std::get<3>(least);
    if (least != cost(node)) continue;  // a better way was found since
    for (const int index : leaving_[at(node)]) {
      const cluster::Link& link = cluster_.links[at(index)];
      const bool relay = node != from && node < workers_;
      const double per_byte = 1 / link.capacity.bytes_per_second();
      Route next = routes_[at(node)];
      next.relays += relay ? 1 : 0;
      next.latency += link.latency.value;
      next.hops += 1;
      next.per_byte += per_byte;
      next.slowest_per_byte = std::max(next.slowest_per_byte, per_byte);
      Route& known = routes_[at(link.to)];
      if (known.reached && std::tuple(known.relays, known.latency, known.hops) <=
                               std::tuple(next.relays, next.latency, next.hops))
        continue;
      known = next;
      queue.push(cost(link.to));
    }
  }
}

double LoneFlow::seconds(int from, int to, std::int64_t bytes) {
  if (from != from_) find_routes(from);
  const Route& route = routes_[at(to)];
  if (!route.reached || route.hops == 0) return 0;
  const std::int64_t payload = transport_.payload_bytes;
  const std::int64_t packets = std::max<std::int64_t>(1, (bytes + payload - 1) / payload);
  const auto wire = static_cast<double>(bytes + packets * transport_.header_bytes);
  const auto first = static_cast<double>(std::min(bytes, payload) + transport_.header_bytes);
  return static_cast<double>(route.latency) * 1e-9 + first * route.per_byte +
         (wire - first) * route.slowest_per_byte;
}

FlowStatistics statistics_of(const std::vector<sim::FlowResult>& flows, const cluster::Cluster& cluster,
                             const sim::TransportOptions& transport) {
  FlowStatistics found;
  if (flows.empty()) return found;
  std::vector<double> took;
  for (const sim::FlowResult& flow : flows) took.push_back(took_seconds(flow));
  std::ranges::sort(took);
  const std::size_t points = std::min(FlowStatistics::kMostPoints, took.size());
  for (std::size_t i = 1; i <= points; ++i) {
    const std::size_t rank = took.size() * i / points;
    found.completion.emplace_back(took[rank - 1],
                                  static_cast<double>(rank) / static_cast<double>(took.size()));
  }

  std::vector<std::size_t> by_source(flows.size());
  std::iota(by_source.begin(), by_source.end(), 0);
  std::ranges::sort(by_source, {}, [&](std::size_t i) { return flows[i].connection.from; });
  LoneFlow alone(cluster, transport);
  struct Same {
    std::vector<double> slowdowns;
    double bytes = 0;
  };
  std::map<int, Same> sizes;  // by half powers of two
  std::vector<double> all;
  for (const std::size_t i : by_source) {
    const sim::Connection& c = flows[i].connection;
    const double least = alone.seconds(c.from, c.to, c.bytes);
    if (least <= 0) continue;
    const double slowdown = took_seconds(flows[i]) / least;
    const auto bytes = static_cast<double>(std::max<std::int64_t>(1, c.bytes));
    Same& same = sizes[static_cast<int>(std::floor(2 * std::log2(bytes)))];
    same.slowdowns.push_back(slowdown);
    same.bytes += bytes;
    all.push_back(slowdown);
  }
  for (auto& [size, same] : sizes) {
    std::ranges::sort(same.slowdowns);
    found.by_size.push_back({same.bytes / static_cast<double>(same.slowdowns.size()), same.slowdowns.size(),
                             quantile(same.slowdowns, 0.5), quantile(same.slowdowns, 0.99)});
  }
  std::ranges::sort(all);
  found.p50 = quantile(all, 0.5);
  found.p99 = quantile(all, 0.99);
  return found;
}

}  // namespace talweg::study
