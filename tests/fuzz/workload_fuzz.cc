// Workloads for a network of four hosts: refused with an Error, or read, and then all that they name exists
// there.
#include "fuzz/fuzz.h"
#include "sim/topology_text.h"
#include "sim/workload.h"

using namespace talweg;

namespace {

void check(const sim::Workload& workload, const cluster::Cluster& network) {
  const auto is_node = [&](int n) { return n >= 0 && n < std::ssize(network.nodes); };
  const auto is_worker = [&](int n) { return n >= 0 && n < network.workers(); };
  const auto is_link = [&](int l) { return l >= 0 && l < std::ssize(network.links); };
  const auto is_priority = [](int p) { return p >= 0 && p < 8; };
  for (const sim::WorkloadGroup& group : workload.groups) {
    fuzz::require(!group.nodes.empty() && group.repeat > 0 && group.jitter >= 0 &&
                  is_priority(group.priority));
    for (const int node : group.nodes) fuzz::require(is_worker(node));
    for (const sim::WorkloadStep& step : group.steps)
      fuzz::require(step.compute.value >= 0 && step.bytes >= 0 && step.root >= 0 &&
                    step.root < std::ssize(group.nodes));
  }
  for (const auto& [connection, route] : workload.flows) {
    fuzz::require(is_worker(connection.from) && is_worker(connection.to) && connection.from != connection.to);
    fuzz::require(connection.bytes > 0 && connection.start >= 0 && is_priority(connection.priority));
    for (const int link : route) fuzz::require(is_link(link));
  }
  for (const sim::BackgroundTraffic& traffic : workload.background) {
    for (const int node : traffic.from) fuzz::require(is_worker(node));
    fuzz::require(traffic.to == -1 || is_worker(traffic.to));
    fuzz::require(traffic.rate.bits_per_second > 0 && traffic.packet_bytes > 0 &&
                  is_priority(traffic.priority));
  }
  for (const sim::NetworkChange& change : workload.changes) {
    fuzz::require(change.at.value >= 0 && (!change.links.empty() || is_node(change.node)));
    for (const int link : change.links) fuzz::require(is_link(link));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const cluster::Cluster kNetwork = sim::parse_topology("leaf-spine:leaves=2,hosts=2,spines=2");
  fuzz::may_refuse([&] {
    check(sim::parse_workload({reinterpret_cast<const char*>(data), size}, "f.yaml", kNetwork), kNetwork);
  });
  return 0;
}
