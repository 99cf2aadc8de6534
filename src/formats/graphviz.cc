#include "formats/graphviz.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "text/escape.h"

namespace talweg::formats {
namespace {

using cluster::Cluster;
using cluster::Link;
using cluster::Node;
using cluster::NodeKind;

std::string quoted(const std::string& text) {
  return '"' + text::backslashed(text) + '"';
}

const char* shape(const Node& node) {
  switch (node.kind) {
    case NodeKind::worker:
      return "box";
    case NodeKind::aggregator:
      return "hexagon";
    case NodeKind::switch_:
      break;
  }
  return "ellipse";
}

std::string label(const Link& link) {
  return fmt::format("{}\\n{}", to_string(link.capacity), to_string(link.latency));
}

}  // namespace

std::string to_dot(const Cluster& cluster) {
  const auto name = [&](int node) { return quoted(cluster.nodes[static_cast<std::size_t>(node)].name); };
  std::string text =
      "digraph cluster {\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=9];\n";
  for (const Node& node : cluster.nodes)
    text += fmt::format("  {} [shape={}];\n", quoted(node.name), shape(node));

  std::vector<std::string> groups(cluster.links.size());
  for (const auto& group : cluster.groups)
    for (const int link : group.links)
      groups[static_cast<std::size_t>(link)] +=
          fmt::format("\\n{} {}", text::backslashed(group.name), to_string(group.capacity));
  std::map<std::pair<int, int>, std::size_t> index;
  for (std::size_t i = 0; i < cluster.links.size(); ++i)
    index[{cluster.links[i].from, cluster.links[i].to}] = i;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    const auto back = index.find({link.to, link.from});
    const bool alike = back != index.end() && label(cluster.links[back->second]) == label(link) &&
                       groups[back->second] == groups[i];
    if (alike && back->second < i) continue;
    text += fmt::format("  {} -> {} [label=\"{}{}\"{}{}];\n", name(link.from), name(link.to), label(link),
                        groups[i], alike ? ", dir=both" : "", groups[i].empty() ? "" : ", style=dashed");
  }
  return text + "}\n";
}

std::string to_dot(const Forest& forest) {
  std::string text = fmt::format("digraph forest {{\n  label={};\n  node [fontname=\"sans-serif\"];\n",
                                 quoted(forest.planner + ", " + name(forest.request.op)));
  for (std::size_t t = 0; t < forest.trees.size(); ++t) {
    const forest::Tree& tree = forest.trees[t];
    text +=
        fmt::format("  subgraph cluster_{} {{\n    label=\"tree {}: elements {} to {}\";\n", t, t,
                    tree.slice.offset, tree.slice.offset + std::max<std::int64_t>(0, tree.slice.count - 1));
    std::set<forest::NodeId> nodes{tree.root};
    for (const auto* edges : {&tree.up, &tree.down})
      for (const forest::Edge& edge : *edges) nodes.insert({edge.child, edge.parent});
    for (const forest::NodeId node : nodes)
      text += fmt::format("    t{}n{} [label=\"{}\", shape={}{}];\n", t, node, node,
                          node < forest.request.ranks ? "box" : "ellipse",
                          node == tree.root ? ", peripheries=2" : "");
    for (const forest::Edge& edge : tree.up)
      text += fmt::format("    t{}n{} -> t{}n{};\n", t, edge.child, t, edge.parent);
    for (const forest::Edge& edge : tree.down)
      text += fmt::format("    t{}n{} -> t{}n{} [style=dashed];\n", t, edge.parent, t, edge.child);
    text += "  }\n";
  }
  return text + "}\n";
}

}  // namespace talweg::formats
