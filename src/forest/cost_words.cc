// What limits a prediction, in the names of the cluster file.
#include "forest/cost_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/at.h"
#include "forest/cost.h"

namespace talweg::forest {

std::string rounded_bytes(double bytes) {
  struct Unit {
    double bytes;
    const char* name;
  };
  for (const Unit unit : {Unit{1e12, "TB"}, Unit{1e9, "GB"}, Unit{1e6, "MB"}, Unit{1e3, "kB"}})
    if (bytes >= 0.9995 * unit.bytes) return fmt::format("{:.3g} {}", bytes / unit.bytes, unit.name);
  return fmt::format("{:.0f} B", bytes);
}

std::string link_name(const cluster::Cluster& cluster, const cluster::Link& link) {
  const auto only = [&](int node, auto end) {
    return cluster.nodes[at(node)].kind == cluster::NodeKind::worker &&
           std::ranges::count(cluster.links, node, end) == 1;
  };
  const std::string &from = cluster.nodes[at(link.from)].name, &to = cluster.nodes[at(link.to)].name;
  if (only(link.to, &cluster::Link::to)) return to + "'s downlink";
  if (only(link.from, &cluster::Link::from)) return from + "'s uplink";
  return fmt::format("{}->{}", from, to);
}

const char* name(Breakdown::Limit limit) {
  switch (limit) {
    case Breakdown::Limit::links:
      return "links";
    case Breakdown::Limit::processors:
      return "processors";
    case Breakdown::Limit::latency:
      break;
  }
  return "latency";
}

std::string CostModel::words(const Breakdown& breakdown, const Limiter& limiter) const {
  using Part = Limiter::Part;
  const double seconds = breakdown.seconds();
  if (seconds <= 0) return "nothing moves";
  const auto carries = [&](const std::string& what, const Bandwidth& rate) {
    return fmt::format("links limit: {} carries {} of the {} that it can in this time", what,
                       rounded_bytes(limiter.bytes), rounded_bytes(rate.bytes_per_second() * seconds));
  };
  const bool links = breakdown.limit == Breakdown::Limit::links;
  const bool processors = breakdown.limit == Breakdown::Limit::processors;
  if (links && limiter.part == Part::link) {
    const cluster::Link& link = cluster_.links[limiter.index];
    const int alike = routes_.followers(static_cast<int>(limiter.index));
    const std::string called = link_name(cluster_, link);
    const std::string text = carries(
        alike > 1 ? fmt::format("each of {} links such as {}", alike, called) : called, link.capacity);
    return limiter.slowdown <= 1
               ? text
               : fmt::format("{}, and takes {:.0f} % longer for it, as so many send there at once", text,
                             100 * (limiter.slowdown - 1));
  }
  if (links && limiter.part == Part::group)
    return carries(cluster_.groups[limiter.index].name, cluster_.groups[limiter.index].capacity);
  if (links && limiter.part == Part::blocks)
    return "links limit: few blocks are on their way at a time, and others wait for these";
  const auto busy = [&](const std::string& who, double cores) {
    return fmt::format(
        "processors limit: {} {} busy for {:.0f} % of the time, with {:.0f} batches, {} in all", who,
        cores > 1 ? "are" : "is", 100 * breakdown.processors / seconds, limiter.batches,
        rounded_bytes(limiter.bytes));
  };
  if (processors && limiter.part == Part::processor) return busy(cluster_.nodes[limiter.index].name, 1);
  if (processors && limiter.part == Part::cores)
    return busy(cluster_.shared_cores > 1 ? fmt::format("the {} shared cores", cluster_.shared_cores)
                                          : "the shared core",
                cluster_.shared_cores);
  const double part = links ? breakdown.links : processors ? breakdown.processors : breakdown.latency;
  const char* const verb = breakdown.limit == Breakdown::Limit::latency ? "limits" : "limit";
  const bool of_path = limiter.part == Part::path &&
                       part >= std::max({breakdown.links, breakdown.processors, breakdown.latency});
  if (of_path)
    return fmt::format("{} {}: {:.0f} % of a chunk's longest way", name(breakdown.limit), verb,
                       100 * part / seconds);
  return fmt::format("{} {}: without, it would be {:.0f} % less", name(breakdown.limit), verb,
                     100 * (1 - breakdown.without / seconds));
}

}  // namespace talweg::forest
