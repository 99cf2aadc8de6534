#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "forest/forest.h"
#include "talweg/error.h"
#include "text/escape.h"
#include "text/yaml_reader.h"

namespace talweg::forest {
namespace {

// Far above any group, far below what would overflow a table over all pairs of nodes.
constexpr std::int64_t kMostNodes = 1 << 16;

NodeId read_node(const text::YamlReader& reader) {
  return static_cast<NodeId>(reader.integer(0, kMostNodes - 1));
}

std::vector<NodeId> read_nodes(const text::YamlReader& reader) {
  std::vector<NodeId> nodes;
  for (const text::YamlReader& item : reader.items()) nodes.push_back(read_node(item));
  return nodes;
}

std::vector<Edge> read_edges(const text::YamlReader& reader) {
  std::vector<Edge> edges;
  for (const text::YamlReader& item : reader.items()) {
    const auto ends = item.items();
    if (ends.size() != 2) item.expected("[child, parent]");
    edges.push_back({read_node(ends[0]), read_node(ends[1])});
  }
  return edges;
}

Slice read_slice(const text::YamlReader& reader) {
  const auto numbers = reader.items();
  if (numbers.size() != 2) reader.expected("[offset, count]");
  return {numbers[0].integer(0), numbers[1].integer(0)};
}

Request read_request(const text::YamlReader& reader) {
  reader.allow_keys({"op", "ranks", "root", "peer", "counts", "element_size"});
  Request request;
  const text::YamlReader op = reader.required("op");
  const auto parsed = parse_collective(op.text());
  if (!parsed) op.expected("a collective such as all_reduce");
  request.op = *parsed;
  request.ranks = static_cast<int>(reader.required("ranks").integer(1, kMostNodes));
  if (const auto root = reader.optional("root")) request.root = read_node(*root);
  if (const auto peer = reader.optional("peer")) request.peer = read_node(*peer);
  for (const text::YamlReader& count : reader.required("counts").items())
    request.counts.push_back(count.integer(0));
  request.element_size = reader.required("element_size").integer(1);
  try {
    validate(request);
  } catch (const Error& error) {
    reader.fail(error.what());
  }
  return request;
}

Tree read_tree(const text::YamlReader& reader) {
  reader.allow_keys({"slice", "root", "chunk", "contributors", "receivers", "up", "down"});
  Tree tree;
  tree.slice = read_slice(reader.required("slice"));
  tree.root = read_node(reader.required("root"));
  tree.chunk = reader.required("chunk").integer(1);
  tree.contributors = read_nodes(reader.required("contributors"));
  tree.receivers = read_nodes(reader.required("receivers"));
  tree.up = read_edges(reader.required("up"));
  tree.down = read_edges(reader.required("down"));
  return tree;
}

nlohmann::ordered_json to_tree(const std::vector<Edge>& edges) {
  auto list = nlohmann::ordered_json::array();
  for (const Edge& edge : edges) list.push_back({edge.child, edge.parent});
  return list;
}

nlohmann::ordered_json to_tree(const Tree& tree) {
  return {{"slice", {tree.slice.offset, tree.slice.count}},
          {"root", tree.root},
          {"chunk", tree.chunk},
          {"contributors", tree.contributors},
          {"receivers", tree.receivers},
          {"up", to_tree(tree.up)},
          {"down", to_tree(tree.down)}};
}

// Both file forms are this tree.
nlohmann::ordered_json to_tree(const Forest& forest) {
  const Request& request = forest.request;
  nlohmann::ordered_json tree{{"planner", forest.planner},
                              {"nodes", forest.nodes},
                              {"sums_once", forest.sums_once},
                              {"request",
                               {{"op", name(request.op)},
                                {"ranks", request.ranks},
                                {"root", request.root},
                                {"peer", request.peer},
                                {"counts", request.counts},
                                {"element_size", request.element_size}}},
                              {"trees", nlohmann::ordered_json::array()}};
  for (const Tree& each : forest.trees) tree["trees"].push_back(to_tree(each));
  return tree;
}

}  // namespace

// Every entry is a line of JSON, which is YAML's flow style.
std::string to_yaml(const Forest& forest) {
  std::string text;
  const auto tree = to_tree(forest);
  for (const auto& [key, value] : tree.items()) {
    if (!value.is_array() || value.empty()) {
      text += fmt::format("{}: {}\n", key, value.dump());
      continue;
    }
    text += key + ":\n";
    for (const auto& entry : value) text += fmt::format("  - {}\n", entry.dump());
  }
  return text::json_unsteered(text);
}

std::string to_json(const Forest& forest) {
  return text::json_unsteered(to_tree(forest).dump(2)) + "\n";
}

Forest parse_forest(const std::string& text, const std::string& origin) {
  const text::YamlReader document = text::read_document(text, origin);
  document.allow_keys({"planner", "nodes", "sums_once", "request", "trees"});
  Forest forest{.planner = document.required("planner").text(),
                .request = read_request(document.required("request")),
                .nodes = static_cast<int>(document.required("nodes").integer(1, kMostNodes)),
                .trees = {}};
  if (const auto sums_once = document.optional("sums_once")) forest.sums_once = sums_once->boolean();
  for (const text::YamlReader& tree : document.required("trees").items())
    forest.trees.push_back(read_tree(tree));
  return forest;
}

Forest load_forest(const std::string& path) {
  return parse_forest(text::read_file(path), path);
}

}  // namespace talweg::forest
