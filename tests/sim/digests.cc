#include "sim/digests.h"

#include "sim/pulled_options.h"
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
  void add(Picoseconds time) { add(static_cast<std::uint64_t>(time)); }
  void add(const RunReport& report) {
    for (const std::uint64_t n :
         {report.events, report.link_hops, report.retransmissions, report.timeouts, report.network.marked,
          report.network.dropped, report.network.trimmed, report.network.lost})
      add(n);
  }
  void add(const WorkloadOutcome& outcome) {
    for (const GroupOutcome& g : outcome.groups)
      for (const Picoseconds t : g.iterations) add(t);
    for (const FlowResult& f : outcome.flows) add(f.ended);
    for (const BackgroundOutcome& b : outcome.background) add(b.arrived);
  }
  std::uint64_t sum() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325;
};

std::uint64_t run(const cluster::Cluster& cluster, const SimulationOptions& options, const char* workload,
                  const WorkloadOptions& how = {}) {
  Simulation simulation(cluster, options);
  Digest digest;
  digest.add(run_workload(simulation, parse_workload(workload, "workload.yaml", cluster), how));
  digest.add(report_of(simulation));
  return digest.sum();
}

std::uint64_t run(const cluster::Cluster& cluster, const SimulationOptions& options, const Matrix& matrix) {
  Simulation simulation(cluster, options);
  Digest digest;
  for (const FlowResult& f : run_matrix(simulation, matrix, kNever)) digest.add(f.ended);
  digest.add(report_of(simulation));
  return digest.sum();
}

std::uint64_t everything() {
  const cluster::Cluster cluster = fat_tree(16, 3, 1, {Bandwidth{25e9}, Nanoseconds{700}});
  SimulationOptions options;
  options.transport.spray = true;
  options.transport.ack_every = 1;
  auto& queue = options.network.switch_queue;
  queue.priorities = 4;
  queue.limit_bytes = 60'000;
  queue.red = {10'000, 50'000, 0.3, true};
  queue.class_limit_bytes[3] = 30'000;
  queue.trim = true;
  options.network.host_queue.priorities = 4;
  options.network.loss = {0.001, 1e-9, 0.0005, 0.3, 0.5, 0.001, 0.001, 0.01, Nanoseconds{5000}};
  return run(cluster, options,
             "groups:\n"
             "  - {name: a, ranks: all, priority: 1, repeat: 2, jitter: 5%, steps: [{compute: 20us}, {op: "
             "all_reduce, bytes: 256KiB, algorithm: ring}]}\n"
             "  - {name: b, ranks: [h1, h5, h9], priority: 2, repeat: 3, steps: [{op: all_to_all, bytes: "
             "64KiB}, {op: broadcast, bytes: 100KiB, algorithm: binomial}]}\n"
             "flows:\n"
             "  - {from: h0, to: h15, bytes: 1MB, start: 10us, priority: 1}\n"
             "background:\n"
             "  - {from: all, to: random, rate: 2Gbit/s, priority: 3}\n"
             "changes:\n"
             "  - {at: 100us, fail: core0}\n"
             "  - {at: 300us, repair: core0}\n");
}

// Flows that keep to one of many equal paths, with queues that fill, mark and drop.
std::uint64_t equal_paths() {
  Matrix matrix;
  matrix.nodes = 54;
  for (int h = 0; h < matrix.nodes; ++h)
    matrix.connections.push_back({h, (h * 5 + 7) % matrix.nodes, h, h * 1000, 300'000});
  SimulationOptions options;
  options.seed = 7;
  options.transport.first_window = 30;
  options.network.switch_queue.limit_bytes = 40'000;
  options.network.switch_queue.mark_bytes = 15'000;
  return run(fat_tree(matrix.nodes, 3, 1, {Bandwidth{10e9}, Nanoseconds{1300}}), options, matrix);
}

// Everybody to everybody over all paths in turn; wires lose packets alone and in bursts.
std::uint64_t sprayed_losses() {
  Matrix matrix;
  matrix.nodes = 16;
  for (int a = 0; a < matrix.nodes; ++a)
    for (int b = 0; b < matrix.nodes; ++b)
      if (a != b) matrix.connections.push_back({a, b, 16 * a + b, 0, 60'000});
  SimulationOptions options;
  options.transport.spray = true;
  options.transport.ack_every = 1;
  options.network.loss.loss = 0.004;
  options.network.loss.bit_error_rate = 3e-7;
  options.network.loss.burst_begins = 0.0003;
  options.network.loss.burst_ends = 0.2;
  options.network.seed = 3;
  const LinkShape link{Bandwidth{40e9}, Nanoseconds{333}};
  return run(leaf_spine(4, 4, 4, link, link), options, matrix);
}

// Computing times that differ, processors that cost, buckets, a link that is shared, other traffic at random
// times.
std::uint64_t jitter() {
  cluster::Cluster cluster = star(6, {Bandwidth{1e9}, Nanoseconds{3000}});
  for (std::size_t l = 0; l < 4; ++l)
    cluster.links[l].capacity = Bandwidth{0.3e9 + 0.1e9 * static_cast<double>(l)};
  for (cluster::Link& link : cluster.links) link.burst = Bytes{64 << 10};
  cluster.groups.push_back({"riser", Bandwidth{1.7e9}, {8, 10}});
  cluster.shared_cores = 2;
  WorkloadOptions how;
  how.seed = 11;
  how.ranks.costs = {.per_batch = 5'000'000, .per_byte = 200, .reduce_per_byte = 67};
  return run(
      cluster, {},
      "groups:\n"
      "  - {name: a, ranks: all, repeat: 4, jitter: 20%, steps: [{compute: 700us}, {op: all_reduce, bytes: "
      "200KiB, algorithm: halving_doubling}, {compute: 100us}, {op: all_gather, bytes: 60KiB, "
      "algorithm: ring}]}\n"
      "background:\n"
      "  - {from: all, to: random, rate: 20Mbit/s}\n",
      how);
}

// Rings of switches of which some fail, over wires that double, damage and hold up packets.
std::uint64_t failures() {
  SimulationOptions options;
  options.network.loss.duplicate = 0.003;
  options.network.loss.damage = 0.002;
  options.network.loss.delay = 0.05;
  options.network.loss.most_delay = Nanoseconds{20'000};
  options.transport.least_rto = Nanoseconds{200'000};
  options.transport.first_rto = Nanoseconds{400'000};
  return run(torus({3, 4}, {Bandwidth{10e9}, Nanoseconds{500}}, {Bandwidth{25e9}, Nanoseconds{800}}), options,
             "groups:\n"
             "  - {name: a, ranks: all, repeat: 3, steps: [{op: all_reduce, bytes: 300KiB, algorithm: "
             "double_binary_tree}]}\n"
             "flows:\n"
             "  - {from: h0, to: h5, bytes: 400KB, start: 5us}\n"
             "changes:\n"
             "  - {at: 80us, fail: r1}\n"
             "  - {at: 500us, repair: r1}\n"
             "  - {at: 600us, fail: r4->r5}\n");
}

// Everybody to everybody, half of it to one host, of 2 to 162 KB, beginning within 60 us.
Matrix mixed_sizes() {
  Matrix matrix;
  matrix.nodes = 12;
  for (int a = 0; a < matrix.nodes; ++a)
    for (int b = 0; b < matrix.nodes; ++b) {
      const int id = matrix.nodes * a + b;
      const int to = id % 2 == 0 ? b : 5;
      if (a != to)
        matrix.connections.push_back({a, to, id, id * 37 % 60 * 1'000'000, 2000 + id % 9 * 20'000});
    }
  return matrix;
}

std::uint64_t run_mixed_sizes(SimulationOptions options) {
  options.seed = 5;
  options.network.seed = 9;
  options.network.loss.loss = 0.001;
  return run(leaf_spine(3, 4, 2, {Bandwidth{10e9}, Nanoseconds{700}}, {Bandwidth{25e9}, Nanoseconds{400}}),
             options, mixed_sizes());
}

// As --transport ndp, pfabric and pias set it: pulls, headers that go before and full queues of either kind.
std::uint64_t sizes_pulled() {
  return run_mixed_sizes(pulled_options());
}

std::uint64_t sizes_by_what_is_left() {
  SimulationOptions options;
  options.transport.kind = TransportKind::pfabric;
  options.transport.first_window = 0;
  options.transport.least_rto = Nanoseconds{0};
  options.transport.spray = options.transport.turns = true;
  options.network.switch_queue.least_left_first = true;
  options.network.switch_queue.limit_bytes = 8 * 1514;
  options.network.switch_queue.limit_round_trips = 2;
  return run_mixed_sizes(options);
}

std::uint64_t sizes_demoted() {
  SimulationOptions options;
  options.transport.turns = true;
  options.transport.ack_every = 1;
  options.transport.demote_bytes = {5'000, 15'000, 30'000, 50'000, 75'000, 100'000, 140'000};
  auto& queue = options.network.switch_queue;
  queue.priorities = options.network.host_queue.priorities = 8;
  queue.limit_bytes = 90'000;
  queue.mark_bytes = 20'000;
  queue.mark_by_delay = true;
  return run_mixed_sizes(options);
}

}  // namespace

const std::vector<DigestRun>& digest_runs() {
  static const std::vector<DigestRun> kRuns = {
      {"everything", 4308314233366802154U, everything},
      {"equal_paths", 18294828817590595737U, equal_paths},
      {"sprayed_losses", 11995914780232348873U, sprayed_losses},
      {"jitter", 2312681208186580187U, jitter},
      {"failures", 593899045558698959U, failures},
      {"ndp", 3526580840196049605U, sizes_pulled},
      {"pfabric", 11756840450992729216U, sizes_by_what_is_left},
      {"pias", 6387301343058395917U, sizes_demoted},
  };
  return kRuns;
}

}  // namespace talweg::sim
