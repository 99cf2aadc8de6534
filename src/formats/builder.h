// Builder: puts an imported network together and says in which line of the file what is wrong with it.
//
//   Builder builder("cluster.topo");
//   const int host = builder.add({.name = "host0"}, 3);          // workers before all other nodes
//   const int tor = builder.add({.name = "tor0", .kind = NodeKind::switch_}, 3);
//   builder.connect(host, tor, {1e11}, {1000}, 7);               // both ways
//   Cluster cluster = builder.finish();
//
// Everything throws Error{bad_file}.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::formats {

using cluster::Cluster;
using cluster::Node;
using cluster::NodeKind;

class Builder {
 public:
  // A description of a few bytes can stand for any number of nodes; beyond these nobody plans or simulates.
  static constexpr std::size_t kMostNodes = 1 << 17;
  static constexpr std::size_t kMostLinks = 1 << 20;

  // `origin` is what the file is called in messages.
  explicit Builder(std::string origin) : origin_(std::move(origin)) {}

  int add(Node node, int line);
  // Links between the same two nodes add up, with the least of their latencies.
  void connect(int a, int b, Bandwidth capacity, Nanoseconds latency, int line);  // both ways
  void connect_one_way(int from, int to, Bandwidth capacity, Nanoseconds latency, int line);
  // Takes out inner nodes with one neighbour or none, again and again: nothing can pass there.
  void drop_dead_ends();
  // Valid, or an error that says in which line it is not.
  Cluster finish();

  [[noreturn]] void fail(int line, const std::string& text) const;

 private:
  std::string origin_;
  Cluster cluster_;
  std::vector<int> node_lines_;
  std::vector<int> link_lines_;
  std::map<std::pair<int, int>, std::size_t> link_between_;
};

}  // namespace talweg::formats
