// Forwarding: which link a node sends a packet over, with all equally good ones known.
//
// Good means what cluster::Routes means: a path passes as few workers as it can, then has the least latency,
// then the fewest links. Where the rest of a way leads through a worker there is no choice: it is over the
// first link written of those equally good. Destinations behind the same switch share a row, so the table of
// an 8192-host fat tree is a few megabytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::sim {

class Forwarding {
 public:
  explicit Forwarding(const cluster::Cluster& cluster);

  // Anew, without the links that are down (one flag per link).
  void rebuild(const std::vector<bool>& down);

  // The link from `node` toward `destination`, another node that is more than a switch which only forwards;
  // -1: there is no way. Among equal ones `spread`
  // decides, digit by digit: a choice among n takes spread % n and leaves spread / n to the nodes behind. A
  // constant is ECMP; one that counts up visits all paths in turn.
  int link(int node, int destination, std::uint32_t& spread) const {
    const Node& n = nodes_[static_cast<std::size_t>(node)];
    if (n.only_link >= 0) return n.only_link;
    const Place& place = places_[static_cast<std::size_t>(destination)];
    if (place.last_link >= 0 && place.at == node) return place.last_link;
    const int entry = table_[static_cast<std::size_t>(n.row) * columns_ + place.column];
    if (entry >= -1) return entry;
    const Group& group = groups_[static_cast<std::size_t>(-2 - entry)];
    const std::uint32_t digit = spread % group.count;
    spread /= group.count;
    return members_[group.first + digit];
  }

  // The links that it chooses from, each as often; none: there is no way.
  std::span<const int> choices(int node, int destination) const;

 private:
  struct Node {
    int only_link = -1;  // of a node with one way out: always that
    int row = -1;        // else
  };
  struct Place {         // where a destination hangs
    int at = -1;         // the node in front of it, or itself
    int last_link = -1;  // from there; -1: `at` is the destination itself
    std::uint32_t column = 0;
  };
  struct Group {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  class Search;

  void place_nodes();
  int entry_for(const std::vector<int>& links, std::size_t row);

  const cluster::Cluster cluster_;
  std::vector<std::vector<int>> out_;  // links by node
  std::vector<std::vector<int>> in_;
  std::vector<Node> nodes_;
  std::vector<Place> places_;
  std::vector<int> targets_;  // node of each column
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::vector<int> table_;  // a link, -1, or -2 - group
  std::vector<Group> groups_;
  std::vector<int> members_;
  std::vector<int> last_entry_;  // by row: rows repeat themselves
};

}  // namespace talweg::sim
