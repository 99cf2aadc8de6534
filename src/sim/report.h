// What became of the network in a run: use, queues, losses, and how much work the run was.
#pragma once

#include <array>
#include <string>

#include "sim/simulation.h"

namespace talweg::sim {

// What all links together report.
struct NetworkSummary {
  double busiest_utilisation = 0;  // bytes over what the link could have carried
  double mean_utilisation = 0;     // of the links that carried anything
  std::string busiest_link;        // "leaf0->spine1"
  std::int64_t most_queued_bytes = 0;
  std::string most_queued_link;
  std::uint64_t dropped = 0;
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t lost = 0;
  std::array<std::uint64_t, kPriorities> dropped_by_priority{};
  std::array<std::uint64_t, kPriorities> marked_by_priority{};
};
std::string link_name(const cluster::Cluster& cluster, int link);
NetworkSummary summarise(const Network& network, Picoseconds duration);

// Of one run, or of several that are added up: counts add, extremes are the extremes.
struct RunReport {
  int runs = 0;
  Picoseconds duration = 0;
  std::uint64_t events = 0;
  std::uint64_t link_hops = 0;
  std::uint64_t unroutable = 0;
  std::uint64_t segments = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  NetworkSummary network;
  void add(const RunReport& other);
};
RunReport report_of(const Simulation& simulation);

}  // namespace talweg::sim
