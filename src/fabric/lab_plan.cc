#include "fabric/lab_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cluster/multicast.h"
#include "cluster/racks.h"
#include "cluster/routing.h"
#include "fabric/lab_groups.h"
#include "fabric/lab_paths.h"
#include "fabric/shaping.h"
#include "talweg/error.h"

namespace talweg::fabric {

namespace {

using cluster::Cluster;
using cluster::Link;
using cluster::NodeKind;

constexpr const char* kMesh = "mesh";
constexpr std::size_t kMostNamed = 8;  // links, on one line

[[noreturn]] void refuse_lab(const std::string& reason) {
  throw Error(ErrorCode::unsupported, "cannot emulate the cluster: " + reason);
}

class Planner {
 public:
  Planner(const Cluster& cluster, const LabMeans& means)
      : cluster_(cluster), means_(means), groups_(assign_groups(cluster)), paths_(find_paths(cluster)) {}

  LabPlan plan() {
    if (cluster_.workers() == 0) refuse_lab("it has no workers");
    check_links();
    check_switch_tree();
    make_bridges();
    make_hosts();
    for (const int l : paths_.trunks) make_trunk(l);
    for (std::size_t h = 0; h < plan_.hosts.size(); ++h) {
      route(static_cast<int>(h));
      shape(static_cast<int>(h));
    }
    name_groups();
    warn();
    return std::move(plan_);
  }

 private:
  const std::string& name_of(int node) const { return cluster_.nodes[node].name; }
  bool is_switch(int node) const { return cluster_.nodes[node].kind == NodeKind::switch_; }
  std::string arrow(const Link& link) const {
    return fmt::format("{}->{}", name_of(link.from), name_of(link.to));
  }
  const Link* find_link(int from, int to) const {
    const auto it = links_.find({from, to});
    return it == links_.end() ? nullptr : &cluster_.links[it->second];
  }

  void check_links() {
    for (std::size_t l = 0; l < cluster_.links.size(); ++l) {
      const Link& link = cluster_.links[l];
      if (!links_.emplace(std::pair(link.from, link.to), static_cast<int>(l)).second)
        refuse_lab(
            fmt::format("there are several links {}; a lab has one from a node to another", arrow(link)));
    }
    for (const Link& link : cluster_.links)
      if ((is_switch(link.from) || is_switch(link.to)) && find_link(link.to, link.from) == nullptr)
        refuse_lab(fmt::format("link {} has no counterpart {}->{}; a switch's link needs both directions",
                               arrow(link), name_of(link.to), name_of(link.from)));
  }

  // Bridges flood what they do not know yet: in a loop, for ever.
  void check_switch_tree() const {
    std::vector<int> root(cluster_.nodes.size());
    std::iota(root.begin(), root.end(), 0);
    const auto find = [&](int node) {
      while (root[node] != node) node = root[node];
      return node;
    };
    for (const int l : paths_.trunks) {
      const Link& link = cluster_.links[l];
      const int a = find(link.from), b = find(link.to);
      if (a == b)
        refuse_lab(fmt::format("the switches form a loop at link {}; a lab needs a tree", arrow(link)));
      root[a] = b;
    }
  }

  Shape shape_of(int link) const {
    Shape shape{groups_.rate[link], {}, cluster_.links[link].burst};
    if (means_.delay) shape.latency = cluster_.links[link].latency;
    return shape;
  }

  std::string bridge_of(int node) const { return node < 0 ? kMesh : fmt::format("br{}", node); }

  void make_bridges() {
    for (int node = -1; node < static_cast<int>(cluster_.nodes.size()); ++node) {
      if (node >= 0 && !is_switch(node)) continue;
      const std::string bridge = bridge_of(node);
      plan_.bridges_ip.push_back(
          fmt::format("link add {} type bridge stp_state 0 forward_delay 0 mcast_snooping 0", bridge));
      plan_.bridges_ip.push_back(fmt::format("link set {} up", bridge));
    }
  }

  void make_hosts() {
    for (std::size_t node = 0; node < cluster_.nodes.size(); ++node) {
      if (!can_aggregate(cluster_.nodes[node])) continue;
      const int h = static_cast<int>(plan_.hosts.size());
      host_of_[static_cast<int>(node)] = h;
      HostPlan host;
      host.name = cluster_.nodes[node].name;
      host.worker = cluster_.nodes[node].kind == NodeKind::worker;
      host.address = fmt::format("{}.{}", means_.subnet, h + 1);
      host.node = static_cast<int>(node);
      host.port = fmt::format("p{}", h);
      plan_.ports_ip.push_back(
          fmt::format("link set {} master {} up", host.port, bridge_of(paths_.switch_of[node])));
      plan_.hosts.push_back(std::move(host));
      node_of_.push_back(static_cast<int>(node));
    }
  }

  void make_trunk(int l) {
    const Link& link = cluster_.links[l];
    const std::string a = fmt::format("t{}a", l), b = fmt::format("t{}b", l);
    plan_.ports_ip.push_back(fmt::format("link add {} type veth peer name {}", a, b));
    plan_.ports_ip.push_back(fmt::format("link set {} master {} up", a, bridge_of(link.from)));
    plan_.ports_ip.push_back(fmt::format("link set {} master {} up", b, bridge_of(link.to)));
    append(plan_.ports_tc, shape_device(a, shape_of(l)));
    append(plan_.ports_tc, shape_device(b, shape_of(links_.at({link.to, link.from}))));
  }

  static void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  }

  void route(int h) {
    HostPlan& host = plan_.hosts[h];
    // Chosen per route, because a namespace may not make an algorithm its default that the machine has not
    // opened to everybody.
    const std::string extras =
        fmt::format("src {}{}", host.address,
                    means_.congestion_control.empty() ? "" : " congctl " + means_.congestion_control);
    host.ip = {"link set lo up", fmt::format("addr add {}/24 dev eth0 noprefixroute", host.address),
               "link set eth0 up", fmt::format("route add {}.0/24 dev eth0 {}", means_.subnet, extras)};
    for (std::size_t d = 0; d < plan_.hosts.size(); ++d) {
      if (static_cast<int>(d) == h) continue;
      const int next = paths_.next_hop[node_of_[h]][node_of_[d]];
      const std::string& address = plan_.hosts[d].address;
      if (next < 0) {
        host.ip.push_back(fmt::format("route add unreachable {}/32", address));
        ++unreachable_;
      } else if (next != node_of_[d]) {
        HostPlan& through = plan_.hosts[host_of_.at(next)];
        through.forwards = true;
        host.ip.push_back(
            fmt::format("route add {}/32 via {} dev eth0 {}", address, through.address, extras));
        ++relayed_;
      }
    }
  }

  void shape(int h) {
    const int node = node_of_[h];
    HostPlan& host = plan_.hosts[h];
    if (const int at = paths_.switch_of[node]; at >= 0) {
      if (at == node) return;  // inside the switch: no link
      append(host.tc, shape_device("eth0", shape_of(links_.at({node, at}))));
      append(plan_.ports_tc, shape_device(host.port, shape_of(links_.at({at, node}))));
      return;
    }
    std::vector<DestinationShape> destinations;
    for (std::size_t d = 0; d < plan_.hosts.size(); ++d) {
      const int next = paths_.next_hop[node][node_of_[d]];
      if (static_cast<int>(d) == h || next < 0) continue;
      const int link = links_.at({node, next});
      destinations.push_back(
          {plan_.hosts[d].address, host_of_.at(next) + 1, shape_of(link), groups_.egress_total_of[link]});
    }
    std::vector<Bandwidth> totals;
    if (const auto it = groups_.egress_totals.find(node); it != groups_.egress_totals.end())
      totals = it->second;
    append(host.tc, shape_destinations("eth0", destinations, totals));
    if (const auto it = groups_.ingress_total.find(node); it != groups_.ingress_total.end())
      append(plan_.ports_tc, shape_device(host.port, {it->second, {}}));
  }

  // Bridges flood what is sent to a group; hosts that have links straight to each other share one that is no
  // switch of the cluster.
  void name_groups() {
    const auto may = [this](int node) {
      return cluster_.nodes[node].can_multicast && !cluster_.nodes[node].switch_at.empty() &&
             paths_.switch_of[node] >= 0;
    };
    if (std::ranges::none_of(node_of_, may)) return;
    const std::vector<int> racks = cluster::racks_of(cluster_);
    const cluster::Routes routes(cluster_);
    for (std::size_t h = 0; h < plan_.hosts.size(); ++h) {
      const int node = node_of_[h];
      if (!may(node)) continue;
      std::vector<int> workers;
      for (int worker = 0; worker < cluster_.workers(); ++worker)
        if (racks.empty() || racks[static_cast<std::size_t>(worker)] == node) workers.push_back(worker);
      if (workers.size() > 1 && !cluster::multicast_tree(cluster_, routes, node, workers).empty())
        plan_.hosts[h].group = fmt::format("239.77.{}.0", h + 1);
    }
  }

  void warn() {
    plan_.warnings = groups_.warnings;
    Nanoseconds longest;
    for (const Link& link : cluster_.links) longest = std::max(longest, link.latency);
    if (longest.value > 0 && !means_.delay)
      plan_.warnings.push_back(
          fmt::format("latencies (up to {}) are not emulated: this kernel has no netem", to_string(longest)));
    if (relayed_ > 0)
      plan_.warnings.push_back(fmt::format(
          "{} pairs of hosts have no link of their own in one direction: others forward their packets",
          relayed_));
    if (unreachable_ > 0)
      plan_.warnings.push_back(
          fmt::format("{} pairs of hosts have no path in one direction: unreachable", unreachable_));
  }

  const Cluster& cluster_;
  const LabMeans& means_;
  GroupAssignment groups_;
  LabPaths paths_;
  std::map<std::pair<int, int>, int> links_;  // (from, to): index of the link
  std::map<int, int> host_of_;                // by node
  std::vector<int> node_of_;                  // by host
  int relayed_ = 0, unreachable_ = 0;
  LabPlan plan_;
};

std::string say_what_is_left_out(const Cluster& cluster, const std::vector<int>& links) {
  std::vector<std::string> names;  // each but once, whichever direction is written first
  std::set<std::pair<int, int>> named;
  for (const int l : links) {
    const Link& link = cluster.links[l];
    if (named.insert(std::minmax(link.from, link.to)).second && names.size() < kMostNamed)
      names.push_back(fmt::format("{} - {}", cluster.nodes[link.from].name, cluster.nodes[link.to].name));
  }
  return fmt::format(
      "a lab has one path between two hosts: its ranks plan for what is left without the links {}{}",
      fmt::join(names, ", "),
      named.size() > names.size() ? fmt::format(" and {} more", named.size() - names.size()) : "");
}

}  // namespace

int LabPlan::workers() const {
  return static_cast<int>(std::ranges::count_if(hosts, [](const HostPlan& h) { return h.worker; }));
}

LabPlan plan_lab(const Cluster& cluster, const LabMeans& means) {
  // Before routes are looked for, which take gigabytes among tens of thousands.
  if (std::ranges::count_if(cluster.nodes, [](const cluster::Node& n) { return can_aggregate(n); }) >
      kMaxLabHosts)
    refuse_lab(fmt::format("it has more than {} hosts; a lab lives on one machine", kMaxLabHosts));
  const LabPaths paths = find_paths(cluster);
  Cluster network = without_links(cluster, paths.left_out);
  LabPlan plan = Planner(network, means).plan();
  plan.network = std::move(network);
  if (!paths.left_out.empty()) plan.left_out = say_what_is_left_out(cluster, paths.left_out);
  return plan;
}

}  // namespace talweg::fabric
