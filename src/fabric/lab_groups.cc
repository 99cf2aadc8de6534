#include "fabric/lab_groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace talweg::fabric {

namespace {

using cluster::CapacityGroup;
using cluster::Cluster;
using cluster::Link;
using cluster::NodeKind;

class Assigner {
 public:
  explicit Assigner(const Cluster& cluster) : cluster_(cluster) {
    for (const Link& link : cluster.links) result_.rate.push_back(link.capacity);
    result_.egress_total_of.resize(cluster.links.size());
  }

  GroupAssignment assign() {
    for (const CapacityGroup& group : cluster_.groups)
      if (group.links.size() == 1) narrow(group);
    for (const CapacityGroup& group : cluster_.groups) {
      if (group.links.size() < 2 || limits_nothing(group) || limits_sender(group) || limits_receiver(group))
        continue;
      result_.warnings.push_back(fmt::format(
          "capacity group {} is not emulated: a lab can share a capacity only among links out of one "
          "worker, or among all links into one, where workers are linked directly",
          group.name));
    }
    return std::move(result_);
  }

 private:
  void narrow(const CapacityGroup& group) {
    Bandwidth& rate = result_.rate[group.links[0]];
    rate = std::min(rate, group.capacity);
  }

  bool limits_nothing(const CapacityGroup& group) const {
    double sum = 0;
    for (const int l : group.links) sum += result_.rate[l].bits_per_second;
    return sum <= group.capacity.bits_per_second;
  }

  bool direct(int l) const {
    const Link& link = cluster_.links[l];
    return cluster_.nodes[link.from].kind != NodeKind::switch_ &&
           cluster_.nodes[link.to].kind != NodeKind::switch_;
  }

  bool limits_sender(const CapacityGroup& group) {
    const int sender = cluster_.links[group.links[0]].from;
    for (const int l : group.links)
      if (!direct(l) || cluster_.links[l].from != sender || result_.egress_total_of[l]) return false;
    std::vector<Bandwidth>& totals = result_.egress_totals[sender];
    for (const int l : group.links) result_.egress_total_of[l] = static_cast<int>(totals.size());
    totals.push_back(group.capacity);
    return true;
  }

  bool limits_receiver(const CapacityGroup& group) {
    const int receiver = cluster_.links[group.links[0]].to;
    for (const int l : group.links)
      if (!direct(l) || cluster_.links[l].to != receiver) return false;
    for (std::size_t l = 0; l < cluster_.links.size(); ++l) {
      const bool listed = std::ranges::find(group.links, static_cast<int>(l)) != group.links.end();
      if (cluster_.links[l].to == receiver && !listed) return false;
    }
    const auto [it, added] = result_.ingress_total.emplace(receiver, group.capacity);
    it->second = std::min(it->second, group.capacity);
    return true;
  }

  const Cluster& cluster_;
  GroupAssignment result_;
};

}  // namespace

GroupAssignment assign_groups(const Cluster& cluster) {
  return Assigner(cluster).assign();
}

}  // namespace talweg::fabric
