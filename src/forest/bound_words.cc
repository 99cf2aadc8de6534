// Certificates in the names of the cluster file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/at.h"
#include "base/units.h"
#include "forest/bound.h"

namespace talweg::forest {
namespace {

constexpr std::size_t kMostNames = 8;  // on one line
constexpr std::size_t kMostPrices = 6;

std::vector<std::string> workers_of(const std::vector<int>& nodes, const cluster::Cluster& cluster) {
  std::vector<std::string> names;
  for (const int node : nodes)
    if (cluster.nodes[at(node)].kind == cluster::NodeKind::worker)
      names.push_back(cluster.nodes[at(node)].name);
  return names;
}

std::string shortened(const std::vector<std::string>& names, std::size_t most) {
  if (names.size() <= most) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more",
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most), ", "),
                     names.size() - most);
}

std::string cut_words(const Certificate& certificate, const cluster::Cluster& cluster) {
  const auto from = workers_of(certificate.parts[0], cluster), to = workers_of(certificate.parts[1], cluster);
  const auto crossing =
      std::accumulate(certificate.link_prices.begin(), certificate.link_prices.end(), std::int64_t{0});
  if (to.size() == 1 && crossing == 1 && certificate.parts[1].size() == 1) return to[0] + "'s downlink";
  if (from.size() == 1 && crossing == 1 && certificate.parts[0].size() == 1) return from[0] + "'s uplink";
  if (to.size() == 1) return "the links into " + to[0];
  if (from.size() == 1) return "the links out of " + from[0];
  return from.size() <= to.size()
             ? fmt::format("the cut from {{{}}} to the rest", shortened(from, kMostNames))
             : fmt::format("the cut to {{{}}} from the rest", shortened(to, kMostNames));
}

std::string partition_words(const Certificate& certificate, const cluster::Cluster& cluster) {
  std::vector<std::string> groups;
  std::size_t alone = 0;
  for (const auto& part : certificate.parts) {
    const auto names = workers_of(part, cluster);
    if (names.empty()) continue;
    if (names.size() == 1) ++alone;
    groups.push_back(fmt::format("{{{}}}", shortened(names, kMostNames)));
  }
  if (groups.size() == 2) return fmt::format("the cut between {} and {}, both ways", groups[0], groups[1]);
  if (alone == groups.size()) return fmt::format("all links together, between {} workers", alone);
  return "all links together, between the parts " + shortened(groups, kMostNames);
}

std::string price_words(const Certificate& certificate, const cluster::Cluster& cluster) {
  std::vector<std::pair<std::int64_t, std::string>> priced;
  for (std::size_t i = 0; i < certificate.link_prices.size(); ++i) {
    const cluster::Link& link = cluster.links[i];
    if (certificate.link_prices[i] > 0)
      priced.emplace_back(certificate.link_prices[i], fmt::format("{}->{}", cluster.nodes[at(link.from)].name,
                                                                  cluster.nodes[at(link.to)].name));
  }
  for (std::size_t i = 0; i < certificate.group_prices.size(); ++i)
    if (certificate.group_prices[i] > 0)
      priced.emplace_back(certificate.group_prices[i], cluster.groups[i].name);
  std::ranges::stable_sort(priced, [](const auto& a, const auto& b) { return a.first > b.first; });
  if (priced.size() == 1) return priced[0].second;
  std::vector<std::string> names;
  for (const auto& [price, name] : priced)
    names.push_back(price == priced.back().first
                        ? name
                        : fmt::format("{:.3g} x {}",
                                      static_cast<double>(price) / static_cast<double>(priced.back().first),
                                      name));
  return "together " + shortened(names, kMostPrices);
}

}  // namespace

std::string to_words(const Bound& bound, const cluster::Cluster& cluster) {
  switch (bound.certificate.kind) {
    case Certificate::Kind::cut:
      return cut_words(bound.certificate, cluster);
    case Certificate::Kind::partition:
      return partition_words(bound.certificate, cluster);
    case Certificate::Kind::prices:
      return price_words(bound.certificate, cluster);
    case Certificate::Kind::nothing:
      break;
  }
  return "nothing moves";
}

std::string to_string(const Ratio& ratio) {
  if (ratio.denominator == 0) return "infinite";
  return ratio.denominator == 1 ? fmt::format("{}", ratio.numerator)
                                : fmt::format("{}/{}", ratio.numerator, ratio.denominator);
}

}  // namespace talweg::forest
