// Routes: how traffic between two nodes of a cluster travels, for all pairs at once.
//
// A route passes as few workers as it can (machines rarely forward), then has the least latency, then the
// fewest links. Where several ways are equally good, path() is one of them, of links written first; traffic
// takes all that lead through switches alone, as these spread it: each node on the way shares out evenly,
// over the links that it could choose, what it passes on; the sender does so over ports of the same capacity.
// A route through other hosts keeps to one path: each node on it passes on over the first link written of
// those that are equally good. Built once per cluster, then read.
//
// In fabrics of many equal ways most links carry the same, whoever sends to whom: the uplinks of a leaf, the
// links from a pod to the cores. Of links that are alike and always loaded alike one leads the others, and
// for_each_share() visits that one alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/stubs.h"

namespace talweg::cluster {

class Routes {
 public:
  explicit Routes(const Cluster& cluster);

  // Both nodes must exist. A node reaches itself by no links, with latency 0 and infinite rate.
  bool reachable(int from, int to) const { return pair(from, to).reachable; }
  // Indices into Cluster::links, in the order of travel; empty when not reachable.
  std::span<const int> path(int from, int to) const;
  Nanoseconds latency(int from, int to) const { return pair(from, to).latency; }
  // What one flow alone gets, spread over all ways: the narrowest link, or capacity group (shared by the
  // links on the ways in it), for the part that it carries.
  Bandwidth rate(int from, int to) const { return pair(from, to).rate; }

  // Whether there are several equally good ways. Only for nodes that send or receive: workers, and others
  // that sum.
  bool spreads(int from, int to) const { return pair(from, to).spread >= 0; }
  // visit(link, part): what part of the traffic travels over each link; of links that share a leader, over
  // that one. Nothing where there is no way.
  template <class Visit>
  void for_each_share(int from, int to, Visit&& visit) const {
    const Pair& found = pair(from, to);
    if (found.spread < 0) {
      for (const int link : path(from, to))
        if (leader(link) == link) visit(link, 1.0);
      return;
    }
    if (const Stub& stub = stubs_[static_cast<std::size_t>(from)]; stub.at >= 0) visit(stub.up, 1.0);
    for (const Share& share : spreads_[static_cast<std::size_t>(found.spread)]) visit(share.link, share.part);
    if (const Stub& stub = stubs_[static_cast<std::size_t>(to)]; stub.at >= 0) visit(stub.down, 1.0);
  }
  // The first of the links that are alike and always loaded alike, and how many they are.
  int leader(int link) const { return leaders_[static_cast<std::size_t>(link)]; }
  int followers(int link) const { return followers_[static_cast<std::size_t>(leader(link))]; }

 private:
  struct Share {
    int link = 0;
    double part = 0;
  };
  using Shares = std::vector<Share>;
  struct Pair {
    bool reachable = false;
    bool relayed = false;  // through a third node that is no switch
    int relays = 0;        // workers passed through
    int spread = -1;       // into spreads_; -1: there is one way, or none
    Nanoseconds latency;
    Bandwidth rate;
    std::size_t first = 0;  // into links_
    std::size_t count = 0;
  };

  const Pair& pair(int from, int to) const {
    return pairs_[static_cast<std::size_t>(from) * nodes_ + static_cast<std::size_t>(to)];
  }

  class Downhill;
  using Links = std::vector<std::vector<int>>;           // that leave each node
  using Groups = std::vector<std::vector<std::size_t>>;  // of each link
  static bool one_way(const Shares& shares) {
    return std::ranges::all_of(shares, [](const Share& share) { return share.part == 1; });
  }
  void choose_relays(const Cluster& cluster, const Links& leaving);
  void measure_rates(const Cluster& cluster, const Groups& groups_of);
  void find_spreads(const Cluster& cluster, const Links& leaving, const Groups& groups_of);
  bool find_leaders(const Cluster& cluster, const Links& leaving, const Groups& groups_of,
                    const std::vector<int>& places);
  Bandwidth spread_rate(const Cluster& cluster, const Groups& groups_of, int from, int to) const;

  std::size_t nodes_;
  std::vector<Pair> pairs_;
  std::vector<int> links_;
  std::vector<Stub> stubs_;
  std::vector<Shares> spreads_;  // between the switches that stubs hang on, or other nodes
  std::vector<int> leaders_, followers_;
};

}  // namespace talweg::cluster
