#include "steer/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/at.h"

namespace talweg::steer {
namespace {

// Rates this close are taken to be the same: no measurement here tells them apart. Between these, so many
// times what half of them are sure to.
constexpr double kLeastSameRates = 0.04, kMostSameRates = 0.08;
constexpr double kWidths = 3;
// Something shared whose users together are below this many times its capacity limits nobody: both are sums
// of what was measured.
constexpr double kBinds = 1.1;

// Every rate in its class: sorted, a class ends where its span would pass what is the same.
class Classes {
 public:
  explicit Classes(const std::vector<Estimate>& estimates) {
    std::vector<double> rates, widths;
    for (const Estimate& e : estimates) {
      rates.push_back(e.value);
      widths.push_back(e.half_width);
    }
    std::ranges::sort(rates);
    std::ranges::sort(widths);
    const double same = std::clamp(kWidths * widths[widths.size() / 2], kLeastSameRates, kMostSameRates);
    for (std::size_t first = 0, i = 0; i < rates.size(); ++i) {
      if (i + 1 < rates.size() && rates[i + 1] <= rates[first] * (1 + same)) continue;
      double sum = 0;
      for (std::size_t k = first; k <= i; ++k) sum += rates[k];
      classes_.push_back({rates[i], sum / static_cast<double>(i - first + 1)});
      first = i + 1;
    }
  }

  double of(double rate) const {
    for (const auto& [last, mean] : classes_)
      if (rate <= last) return mean;
    return rate;
  }

 private:
  std::vector<std::pair<double, double>> classes_;  // the greatest rate in it, and the mean
};

// Three digits: what is measured is not known better, and files are read by people.
Bandwidth rounded(double rate) {
  const double digit = std::pow(10.0, std::floor(std::log10(std::max(rate, 1.0))) - 2);
  return {std::max(std::round(rate / digit) * digit, 1.0)};
}

Nanoseconds in_ns(double ns) {
  return {std::max<std::int64_t>(0, std::llround(ns / 100) * 100)};
}

// One way latencies as sums: of a part for each host and one for each uplink between them, by least squares,
// one unknown at a time (Gauss-Seidel), none below zero.
struct LatencyParts {
  std::vector<double> host, uplink;
};

LatencyParts split_latencies(const Findings& found) {
  LatencyParts parts{std::vector<double>(at(found.hosts)), std::vector<double>(found.uplinks.size())};
  if (found.latency_ns.empty()) return parts;
  std::vector<std::vector<bool>> inside(found.uplinks.size(), std::vector<bool>(at(found.hosts)));
  for (std::size_t u = 0; u < inside.size(); ++u)
    for (const int h : found.uplinks[u].inside) inside[u][at(h)] = true;
  const auto sum = [&](int a, int b) {
    double ns = parts.host[at(a)] + parts.host[at(b)];
    for (std::size_t u = 0; u < inside.size(); ++u)
      if (inside[u][at(a)] != inside[u][at(b)]) ns += parts.uplink[u];
    return ns;
  };
  const auto improve = [&](double& part, const auto& concerns) {
    double error = 0;
    int pairs = 0;
    for (int a = 0; a < found.hosts; ++a)
      for (int b = a + 1; b < found.hosts; ++b) {
        if (!concerns(a, b)) continue;
        error += found.latency_ns[at(a)][at(b)] - sum(a, b);
        ++pairs;
      }
    if (pairs > 0) part = std::max(0.0, part + error / pairs);
  };
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int h = 0; h < found.hosts; ++h)
      improve(parts.host[at(h)], [&](int a, int b) { return a == h || b == h; });
    for (std::size_t u = 0; u < inside.size(); ++u)
      improve(parts.uplink[u], [&](int a, int b) { return inside[u][at(a)] != inside[u][at(b)]; });
  }
  return parts;
}

std::string fit_for_a_name(std::string text) {
  for (char& c : text)
    if (c == ' ' || c == '\t' || c == '\n' || c == '>') c = '_';
  return text.empty() ? "host" : text;
}

// Gives out each name once.
class Names {
 public:
  std::string unique(const std::string& wanted) {
    std::string name = fit_for_a_name(wanted);
    for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}-{}", fit_for_a_name(wanted), i);
    return name;
  }

 private:
  std::set<std::string> taken_;
};

class Writer {
 public:
  Writer(const Findings& found, const Layout& layout)
      : found_(found), layout_(layout), classes_(all_estimates(found)), latency_(split_latencies(found)) {}

  Cluster write() {
    host_names_ = node_names(layout_);
    for (const std::string& name : host_names_) unique(name);
    add_workers();
    if (found_.hosts == 2 || !found_.pairs.empty() || !separate_uplinks()) {
      write_mesh();
    } else {
      write_tree();
    }
    cluster_.confidence = std::ceil(std::min(found_.confidence, 0.99) * 1000) / 1000;
    validate(cluster_);
    return std::move(cluster_);
  }

 private:
  static std::vector<Estimate> all_estimates(const Findings& found) {
    std::vector<Estimate> rates;
    const auto take = [&](const std::optional<Estimate>& e) {
      if (e) rates.push_back(*e);
    };
    for (int h = 0; h < found.hosts; ++h) {
      take(found.out[at(h)]);
      take(found.in[at(h)]);
      take(found.both[at(h)]);
    }
    for (const auto& pair : found.pairs) take(pair.rate);
    for (const auto& uplink : found.uplinks) {
      take(uplink.leaving);
      take(uplink.entering);
    }
    return rates;
  }

  double alike(const Estimate& rate) const { return classes_.of(rate.value); }
  double out(int h) const { return alike(found_.out[at(h)]); }
  double in(int h) const { return alike(found_.in[at(h)]); }

  std::string unique(const std::string& wanted) { return names_.unique(wanted); }

  // Ranks first; a host with several is a switch between them.
  void add_workers() {
    std::vector<int> ranks(at(found_.hosts));
    for (const int h : layout_.host_of) ++ranks[at(h)];
    node_.assign(at(found_.hosts), -1);
    for (std::size_t r = 0; r < layout_.host_of.size(); ++r) {
      const int h = layout_.host_of[r];
      if (ranks[at(h)] == 1) node_[at(h)] = static_cast<int>(r);
      cluster_.nodes.push_back(
          {.name = ranks[at(h)] == 1 ? host_names_[at(h)] : unique(fmt::format("rank{}", r))});
    }
    for (int h = 0; h < found_.hosts; ++h)
      if (ranks[at(h)] > 1) node_[at(h)] = add_switch(host_names_[at(h)]);
    for (std::size_t r = 0; r < layout_.host_of.size(); ++r) {
      const int own = static_cast<int>(r), host = node_[at(layout_.host_of[r])];
      if (own == host) continue;
      add_link(own, host, layout_.memory, {layout_.memory_latency.value / 2});
      add_link(host, own, layout_.memory, {layout_.memory_latency.value / 2});
    }
  }

  int add_switch(const std::string& name) {
    cluster_.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
    return static_cast<int>(cluster_.nodes.size()) - 1;
  }

  int add_link(int from, int to, Bandwidth rate, Nanoseconds latency) {
    cluster_.links.push_back({from, to, rate, latency});
    return static_cast<int>(cluster_.links.size()) - 1;
  }

  void add_group(const std::string& name, double capacity, std::vector<int> links) {
    double sum = 0;
    for (const int l : links) sum += cluster_.links[at(l)].capacity.bits_per_second;
    if (links.size() < 2 || sum < kBinds * capacity) return;
    cluster_.groups.push_back({unique(name), rounded(capacity), std::move(links)});
  }

  bool separate_uplinks() const {
    std::set<int> seen;
    for (const auto& uplink : found_.uplinks)
      for (const int h : uplink.inside)
        if (!seen.insert(h).second) return false;
    return true;
  }

  void write_tree() {
    const int core = add_switch(unique("network"));
    std::vector<int> above(at(found_.hosts), core);
    for (std::size_t u = 0; u < found_.uplinks.size(); ++u) {
      const auto& uplink = found_.uplinks[u];
      const int leaf = add_switch(unique(fmt::format("leaf{}", u)));
      double most_out = 0, most_in = 0;
      for (const int h : uplink.inside) {
        above[at(h)] = leaf;
        most_out += out(h);
        most_in += in(h);
      }
      const Nanoseconds latency = in_ns(latency_.uplink[u]);
      add_link(leaf, core, rounded(uplink.leaving ? alike(*uplink.leaving) : most_out), latency);
      add_link(core, leaf, rounded(uplink.entering ? alike(*uplink.entering) : most_in), latency);
    }
    for (int h = 0; h < found_.hosts; ++h) {
      const Nanoseconds latency = in_ns(latency_.host[at(h)]);
      const int up = add_link(node_[at(h)], above[at(h)], rounded(out(h)), latency);
      const int down = add_link(above[at(h)], node_[at(h)], rounded(in(h)), latency);
      if (found_.both[at(h)]) add_group(host_names_[at(h)] + "-port", alike(*found_.both[at(h)]), {up, down});
    }
  }

  void write_mesh() {
    std::vector<std::vector<int>> link(at(found_.hosts), std::vector<int>(at(found_.hosts), -1));
    for (int i = 0; i < found_.hosts; ++i)
      for (int j = 0; j < found_.hosts; ++j) {
        if (i == j) continue;
        const auto pair = std::ranges::find_if(found_.pairs, [&](const Findings::Pair& p) {
          return p.flow == Flow{i, j};
        });
        const double rate = pair != found_.pairs.end() ? alike(pair->rate) : std::min(out(i), in(j));
        const double ns = found_.latency_ns.empty() ? 0 : found_.latency_ns[at(i)][at(j)];
        link[at(i)][at(j)] = add_link(node_[at(i)], node_[at(j)], rounded(rate), in_ns(ns));
      }
    const auto links = [&](const auto& chosen) {
      std::vector<int> list;
      for (int i = 0; i < found_.hosts; ++i)
        for (int j = 0; j < found_.hosts; ++j)
          if (i != j && chosen(i, j)) list.push_back(link[at(i)][at(j)]);
      return list;
    };
    for (int h = 0; h < found_.hosts; ++h) {
      const std::string& name = host_names_[at(h)];
      add_group(name + "-out", out(h), links([&](int i, int) { return i == h; }));
      add_group(name + "-in", in(h), links([&](int, int j) { return j == h; }));
      if (found_.both[at(h)])
        add_group(name + "-port", alike(*found_.both[at(h)]),
                  links([&](int i, int j) { return i == h || j == h; }));
    }
    for (std::size_t u = 0; u < found_.uplinks.size(); ++u) {
      const auto& uplink = found_.uplinks[u];
      std::vector<bool> inside(at(found_.hosts));
      for (const int h : uplink.inside) inside[at(h)] = true;
      if (uplink.leaving)
        add_group(fmt::format("uplink{}-out", u), alike(*uplink.leaving),
                  links([&](int i, int j) { return inside[at(i)] && !inside[at(j)]; }));
      if (uplink.entering)
        add_group(fmt::format("uplink{}-in", u), alike(*uplink.entering),
                  links([&](int i, int j) { return !inside[at(i)] && inside[at(j)]; }));
    }
  }

  const Findings& found_;
  const Layout& layout_;
  const Classes classes_;
  const LatencyParts latency_;
  Names names_;
  std::vector<std::string> host_names_;
  std::vector<int> node_;  // by host: the worker, or the switch between its ranks
  Cluster cluster_;
};

}  // namespace

std::vector<std::string> node_names(const Layout& layout) {
  Names names;
  std::vector<std::string> list;
  for (const std::string& name : layout.host_names) list.push_back(names.unique(name));
  return list;
}

Cluster to_cluster(const Findings& findings, const Layout& layout) {
  return Writer(findings, layout).write();
}

}  // namespace talweg::steer
