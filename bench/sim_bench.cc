// How fast the simulator moves packets: link-hops per CPU second of one core, and memory, on the scenarios of
// which other simulators' numbers are known. One line of JSON for each; see suite/simulator.py.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "sim/simulation.h"
#include "sim/topologies.h"

namespace {

using namespace talweg;

struct Scenario {
  const char* name;
  cluster::Cluster cluster;
  sim::SimulationOptions options;
  std::vector<std::pair<int, int>> flows;
  std::int64_t bytes;
  int priority = 0;
};

// A packet of htsim's NDP has its MTU as payload and 64 bytes of header; acknowledgements, of each, have 64.
sim::SimulationOptions like_htsim(int payload, int window, int queue_packets) {
  sim::SimulationOptions o;
  o.transport.payload_bytes = payload;
  o.transport.header_bytes = o.transport.acknowledgement_bytes = 64;
  o.transport.ack_every = 1;
  o.transport.first_window = window;
  o.transport.spray = true;
  o.network.switch_queue.limit_bytes = static_cast<std::int64_t>(queue_packets) * (payload + 64);
  o.network.switch_queue.mark_bytes = o.network.switch_queue.limit_bytes / 5;
  o.network.host_queue.mark_bytes = o.network.switch_queue.mark_bytes;
  return o;
}

// NDP's switches cut packets that do not fit down to their headers, so that a sender learns of each loss at
// once; where many send to one this decides when the last of them ends.
sim::SimulationOptions trimming(sim::SimulationOptions o) {
  o.network.switch_queue.priorities = o.network.host_queue.priorities = 2;
  o.network.switch_queue.trim = true;
  return o;
}

// And its receivers ask for what is sent, at the rate of their links.
sim::SimulationOptions pulled(sim::SimulationOptions o) {
  o = trimming(o);
  o.transport.kind = sim::TransportKind::pulled;
  o.transport.data_priority = 1;
  o.network.switch_queue.mark_bytes = o.network.host_queue.mark_bytes = 0;
  o.network.switch_queue.urgent_limit_bytes = 1 << 20;
  return o;
}

// A random permutation without fixed points, the same everywhere.
std::vector<std::pair<int, int>> permutation(int hosts) {
  std::vector<int> to(static_cast<std::size_t>(hosts));
  std::iota(to.begin(), to.end(), 0);
  Random random(1);
  for (std::size_t i = to.size(); i-- > 1;) std::swap(to[i], to[random.below(i)]);  // Sattolo: one cycle
  std::vector<std::pair<int, int>> flows;
  for (int h = 0; h < hosts; ++h) flows.emplace_back(h, to[static_cast<std::size_t>(h)]);
  return flows;
}

std::vector<Scenario> scenarios(const char* wanted) {
  std::vector<Scenario> all;
  const auto add = [&](const char* name, auto&& make) {
    if (wanted == nullptr || std::strcmp(wanted, name) == 0) all.push_back(make(name));
  };
  const sim::LinkShape ten{Bandwidth{10e9}, Nanoseconds{1000}};
  const sim::LinkShape hundred{Bandwidth{100e9}, Nanoseconds{1000}};
  const auto ls16 = [&] { return sim::leaf_spine(4, 4, 4, ten, ten); };
  add("ls16-permutation-30MB", [&](const char* name) {
    Scenario s{name, ls16(), like_htsim(1500, 30, 100), {}, 30'000'000};
    for (int h = 0; h < 16; ++h) s.flows.emplace_back(h, (h + 4) % 16);
    return s;
  });
  add("ls16-permutation-30MB-ndp", [&](const char* name) {
    Scenario s{name, ls16(), pulled(like_htsim(1500, 30, 100)), {}, 30'000'000};
    for (int h = 0; h < 16; ++h) s.flows.emplace_back(h, (h + 4) % 16);
    return s;
  });
  const auto all_to_all = [&](const char* name, int mb) {
    Scenario s{name, ls16(), pulled(like_htsim(1500, 30, 100)), {}, mb * 1'000'000LL};
    for (int a = 0; a < 16; ++a)
      for (int b = 0; b < 16; ++b)
        if (a != b) s.flows.emplace_back(a, b);
    return s;
  };
  add("ls16-all-to-all-1MB-ndp", [&](const char* name) { return all_to_all(name, 1); });
  add("ls16-all-to-all-4MB-ndp", [&](const char* name) { return all_to_all(name, 4); });
  for (const int mb : {1, 4})
    add(mb == 1 ? "ls16-all-to-all-1MB" : "ls16-all-to-all-4MB", [&](const char* name) {
      Scenario s{name, ls16(), trimming(like_htsim(1500, 30, 100)), {}, mb * 1'000'000LL};
      s.priority = 1;
      for (int a = 0; a < 16; ++a)
        for (int b = 0; b < 16; ++b)
          if (a != b) s.flows.emplace_back(a, b);
      return s;
    });
  add("ls16-incast-10MB", [&](const char* name) {
    Scenario s{name, ls16(), like_htsim(1500, 30, 100), {}, 10'000'000};
    for (int h = 0; h < 15; ++h) s.flows.emplace_back(h, 15);
    return s;
  });
  add("ls16-incast-10MB-ndp", [&](const char* name) {
    Scenario s{name, ls16(), pulled(like_htsim(1500, 30, 100)), {}, 10'000'000};
    for (int h = 0; h < 15; ++h) s.flows.emplace_back(h, 15);
    return s;
  });
  add("fat-tree-1024-permutation-2MB-ndp", [&](const char* name) {
    return Scenario{name, sim::fat_tree(1024, 3, 1, hundred), pulled(like_htsim(4000, 50, 35)),
                    permutation(1024), 2'000'000};
  });
  add("fat-tree-1024-permutation-2MB", [&](const char* name) {
    return Scenario{name, sim::fat_tree(1024, 3, 1, hundred), like_htsim(4000, 50, 35), permutation(1024),
                    2'000'000};
  });
  add("fat-tree-8192-permutation-2MB", [&](const char* name) {
    return Scenario{name, sim::fat_tree(8192, 3, 1, hundred), like_htsim(4000, 50, 35), permutation(8192),
                    2'000'000};
  });
  return all;
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Finish : sim::FlowClient {
  explicit Finish(std::size_t flows) : at(flows, -1) {}
  void on_delivered(sim::FlowId flow, std::int64_t, sim::Picoseconds now) override { at[flow] = now; }
  void on_writable(sim::FlowId, sim::Picoseconds) override {}
  std::vector<sim::Picoseconds> at;
};

int measure(const Scenario& s) {
  const double begun = cpu_seconds();
  sim::Simulation simulation(s.cluster, s.options);
  Finish finish(s.flows.size());
  simulation.set_client(&finish);
  for (const auto& [from, to] : s.flows) {
    const sim::FlowId flow = simulation.transport().open({from, to, s.priority, sim::kNoRoute});
    simulation.transport().notify_at(flow, s.bytes);
    simulation.transport().write(flow, s.bytes, 0);
  }
  const double set_up = cpu_seconds();
  simulation.run();
  const double ended = cpu_seconds();
  const auto [least, most] = std::minmax_element(finish.at.begin(), finish.at.end());
  std::uint64_t retransmissions = 0;
  std::uint64_t drops = 0;
  for (sim::FlowId f = 0; f < s.flows.size(); ++f)
    retransmissions += simulation.transport().counters(f).retransmissions;
  for (std::size_t l = 0; l < s.cluster.links.size(); ++l)
    for (const std::uint64_t d : simulation.network().counters(static_cast<int>(l)).dropped) drops += d;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto hops = simulation.network().counters().link_hops;
  fmt::print(
      "{{\"scenario\": \"{}\", \"link_hops\": {}, \"events\": {}, \"cpu_s\": {:.3f}, \"set_up_cpu_s\": "
      "{:.3f}, "
      "\"link_hops_per_s\": {:.0f}, \"first_finish_ms\": {:.4f}, \"last_finish_ms\": {:.4f}, "
      "\"retransmissions\": {}, \"drops\": {}, \"peak_memory_MB\": {:.1f}}}\n",
      s.name, hops, simulation.events(), ended - set_up, set_up - begun,
      static_cast<double>(hops) / (ended - set_up), sim::seconds(*least) * 1e3, sim::seconds(*most) * 1e3,
      retransmissions, drops, static_cast<double>(usage.ru_maxrss) / 1024);
  std::fflush(stdout);
  return *least < 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  for (const Scenario& s : scenarios(argc > 1 ? argv[1] : nullptr)) status |= measure(s);
  return status;
}
