#include "sim/outage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/report.h"

namespace talweg::sim {
namespace {

constexpr std::size_t kNamedInMessages = 8;

std::string outage_name(const cluster::Cluster& cluster, const Simulation::Outage& outage) {
  return outage.node >= 0 ? cluster.nodes[static_cast<std::size_t>(outage.node)].name
                          : link_name(cluster, outage.links.front());
}

std::string since_text(const cluster::Cluster& cluster, const std::vector<Simulation::Outage>& outages) {
  std::vector<std::string> parts;
  for (const Simulation::Outage& outage : outages)
    parts.push_back(fmt::format("{} failed at {}", outage_name(cluster, outage),
                                to_string(Nanoseconds{outage.since / kPicosecondsPerNanosecond})));
  return abridged(parts) + (parts.size() == 1 ? " and was not repaired" : " and were not repaired");
}

// Which nodes are reached from `start` along links, or against them, without what is out.
std::vector<bool> reached_in_outages(const Simulation& simulation, int start, bool along) {
  const cluster::Cluster& cluster = simulation.network().cluster();
  std::vector<bool> node_out(cluster.nodes.size()), link_out(cluster.links.size());
  for (const Simulation::Outage& outage : simulation.outages()) {
    if (outage.node >= 0) node_out[static_cast<std::size_t>(outage.node)] = true;
    for (const int link : outage.links) link_out[static_cast<std::size_t>(link)] = true;
  }
  std::vector<std::vector<int>> next(cluster.nodes.size());
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const cluster::Link& link = cluster.links[l];
    const int from = along ? link.from : link.to, to = along ? link.to : link.from;
    if (!link_out[l] && !node_out[static_cast<std::size_t>(to)])
      next[static_cast<std::size_t>(from)].push_back(to);
  }
  std::vector<bool> seen(cluster.nodes.size());
  std::vector<int> open{start};
  seen[static_cast<std::size_t>(start)] = true;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int neighbour : next[static_cast<std::size_t>(node)])
      if (!seen[static_cast<std::size_t>(neighbour)]) {
        seen[static_cast<std::size_t>(neighbour)] = true;
        open.push_back(neighbour);
      }
  }
  return seen;
}

}  // namespace

std::string outage_text(const Simulation& simulation, std::vector<int> nodes) {
  const std::vector<Simulation::Outage>& outages = simulation.outages();
  if (outages.empty() || nodes.empty()) return "";
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const cluster::Cluster& cluster = simulation.network().cluster();

  std::vector<Simulation::Outage> own;
  std::ranges::copy_if(outages, std::back_inserter(own), [&](const Simulation::Outage& outage) {
    return std::ranges::binary_search(nodes, outage.node);
  });
  if (!own.empty()) return since_text(cluster, own) + ": ";

  const std::vector<bool> to = reached_in_outages(simulation, nodes.front(), true);
  const std::vector<bool> from = reached_in_outages(simulation, nodes.front(), false);
  std::vector<std::string> here, there;
  for (const int node : nodes) {
    const auto index = static_cast<std::size_t>(node);
    (to[index] && from[index] ? here : there).push_back(cluster.nodes[index].name);
  }
  if (there.empty()) return "";
  if (there.size() > here.size()) std::swap(here, there);
  return fmt::format("{}, which cuts {} off from {}: ", since_text(cluster, outages), abridged(there),
                     abridged(here));
}

std::string abridged(const std::vector<std::string>& names) {
  const std::size_t named = std::min(names.size(), kNamedInMessages);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + named, ", "));
  if (named < names.size()) text += fmt::format(" and {} more", names.size() - named);
  return text;
}

}  // namespace talweg::sim
