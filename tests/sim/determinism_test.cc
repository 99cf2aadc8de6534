// The same run everywhere: a digest of what happened, made once and stored here, that every compiler, build
// type and machine must come to. It changes only when the model does.
#include <gtest/gtest.h>

#include "sim/ranks.h"
#include "sim/topologies.h"
#include "sim/workload_run.h"

namespace talweg::sim {
namespace {

class Digest {
 public:
  void add(std::uint64_t value) {  // FNV-1a, byte by byte
    for (int i = 0; i < 8; ++i) {
      sum_ ^= (value >> (8 * i)) & 0xff;
      sum_ *= 0x100000001b3;
    }
  }
  std::uint64_t sum() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325;
};

TEST(Determinism, ARunWithEverythingInItHasTheStoredDigest) {
  constexpr LinkShape kLink{Bandwidth{25e9}, Nanoseconds{700}};
  const cluster::Cluster cluster = fat_tree(16, 3, 1, kLink);
  SimulationOptions options;
  options.transport.spray = true;
  auto& queue = options.network.switch_queue;
  queue.priorities = 4;
  queue.limit_bytes = 60'000;
  queue.red = {10'000, 50'000, 0.3, true};
  queue.class_limit_bytes[3] = 30'000;
  queue.trim = true;
  options.network.host_queue.priorities = 4;
  options.network.loss = {0.001, 1e-9, 0.0005, 0.3, 0.5, 0.001, 0.001, 0.01, Nanoseconds{5000}};
  const Workload workload = parse_workload(
      "groups:\n"
      "  - {name: a, ranks: all, priority: 1, repeat: 2, jitter: 5%, steps: [{compute: 20us}, {op: "
      "all_reduce, bytes: 256KiB, algorithm: ring}]}\n"
      "  - {name: b, ranks: [h1, h5, h9], priority: 2, repeat: 3, steps: [{op: all_to_all, bytes: 64KiB}, "
      "{op: broadcast, bytes: 100KiB, algorithm: binomial}]}\n"
      "flows:\n"
      "  - {from: h0, to: h15, bytes: 1MB, start: 10us, priority: 1}\n"
      "background:\n"
      "  - {from: all, to: random, rate: 2Gbit/s, priority: 3}\n"
      "changes:\n"
      "  - {at: 100us, fail: core0}\n"
      "  - {at: 300us, repair: core0}\n",
      "everything.yaml", cluster);
  Simulation simulation(cluster, options);
  const WorkloadOutcome outcome = run_workload(simulation, workload, {});
  Digest digest;
  for (const GroupOutcome& g : outcome.groups)
    for (const Picoseconds t : g.iterations) digest.add(static_cast<std::uint64_t>(t));
  digest.add(static_cast<std::uint64_t>(outcome.flows[0].ended));
  digest.add(outcome.background[0].arrived);
  const RunReport report = report_of(simulation);
  for (const std::uint64_t n :
       {report.events, report.link_hops, report.retransmissions, report.timeouts, report.network.marked,
        report.network.dropped, report.network.trimmed, report.network.lost})
    digest.add(n);
  EXPECT_GT(report.retransmissions, 0U);
  EXPECT_GT(report.network.lost, 0U);
  EXPECT_EQ(digest.sum(), 16188159351342598611U);
}

}  // namespace
}  // namespace talweg::sim
