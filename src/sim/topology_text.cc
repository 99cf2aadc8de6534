#include "sim/topology_text.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "sim/named_values.h"
#include "sim/topologies.h"

namespace talweg::sim {

namespace {

constexpr int kMost = 1 << 20;

// The rates and latencies of one topology's links.
class Links {
 public:
  explicit Links(NamedValues& values) : values_(values) {}

  // The hosts'.
  LinkShape hosts() {
    shape_.capacity = parse_bandwidth(values_.take("rate", "10G"));
    check("rate", shape_);
    shape_.latency = parse_nanoseconds(values_.take("latency", "1us"));
    check("latency", shape_);
    return shape_;
  }
  // The same as the hosts' but for what is said; after hosts().
  LinkShape up() {
    LinkShape shape = shape_;
    const std::string rate = values_.take("up", "");
    if (!rate.empty()) shape.capacity = parse_bandwidth(rate);
    check("up", shape);
    return shape;
  }

 private:
  // `name` was the last to change. A problem reads "link h0->switch: expected ...".
  void check(const char* name, const LinkShape& shape) const {
    if (const auto problem = cluster::find_problem(star(1, shape)))
      values_.refuse(name + problem->text.substr(problem->text.find(':')));
  }

  NamedValues& values_;
  LinkShape shape_;
};

std::vector<int> dimensions(NamedValues& n) {
  std::vector<int> all;
  std::istringstream list(n.take("dims", "4x4") +
                          "x");  // so that nothing behind the last x is something, too
  for (std::string item; std::getline(list, item, 'x');) all.push_back(n.parse("dims", item, 1, kMost));
  return all;
}

}  // namespace

cluster::Cluster parse_topology(const std::string& text) {
  NamedValues n("topology ", text);
  Links links(n);
  const auto number = [&](const char* name, int otherwise) { return n.number(name, otherwise, 1, kMost); };
  const LinkShape link = links.hosts();
  if (n.kind() == "star") {
    const int hosts = number("hosts", 16);
    n.done();
    return star(hosts, link);
  }
  if (n.kind() == "leaf-spine") {
    const int leaves = number("leaves", 4), hosts = number("hosts", 4), spines = number("spines", 4);
    const LinkShape up = links.up();
    n.done();
    return leaf_spine(leaves, hosts, spines, link, up);
  }
  if (n.kind() == "fat-tree") {
    const int hosts = number("hosts", 16), tiers = number("tiers", 3);
    const int over = number("oversubscription", 1);
    n.done();
    return fat_tree(hosts, tiers, over, link);
  }
  if (n.kind() == "torus") {
    const std::vector<int> dims = dimensions(n);
    const LinkShape up = links.up();
    n.done();
    return torus(dims, link, up);
  }
  if (n.kind() == "dragonfly") {
    const int routers = number("routers", 4), hosts = number("hosts", 2), global = number("global", 1);
    const LinkShape up = links.up();
    n.done();
    return dragonfly(routers, hosts, global, link, up);
  }
  n.refuse("expected star, leaf-spine, fat-tree, torus or dragonfly");
}

}  // namespace talweg::sim
