// PipeDream's profiles: a graph of layers with times in milliseconds and sizes in bytes, then its edges,
// indented.
//
//   node1 -- Input -- forward_compute_time=473.6, backward_compute_time=0.0, activation_size=154140672.0, parameter_size=0.0
//   node2 -- Conv2d(3, 64, bias=False) -- forward_compute_time=23.0, backward_compute_time=9.3, activation_size=82.0, parameter_size=37632.0
//   <tab>node1 -- node2
//
// Layers come in an order in which each follows what it reads, by their numbers where that leaves a choice.
// Input's time is that of reading a batch. Layers are called as their nodes are: conv2d_node2.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "base/trim.h"
#include "train/traces/importers.h"

namespace talweg::train {
namespace {

struct Node {
  Layer layer;
  bool is_input = false;
  std::vector<int> from;  // numbers
};

int node_number(const Lines& lines, std::string_view text) {
  if (!text.starts_with("node")) lines.fail(fmt::format("expected a node such as node12, got \"{}\"", text));
  return static_cast<int>(whole_number(lines, text.substr(4), "number of a node", kMostLayers));
}

std::vector<std::string_view> parts_of(std::string_view line) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto dashes = line.find(" -- ");
    parts.push_back(trimmed(line.substr(0, dashes)));
    if (dashes == std::string_view::npos) return parts;
    line.remove_prefix(dashes + 4);
  }
}

std::string_view field_of(const Lines& lines, std::string_view fields, std::string_view key) {
  const auto at = fields.find(key);
  if (at == std::string_view::npos || fields.substr(at + key.size(), 1) != "=")
    lines.fail(fmt::format("expected {}=", key));
  const std::string_view value = fields.substr(at + key.size() + 1);
  return trimmed(value.substr(0, value.find(',')));
}

std::string layer_name(std::string_view described, int number) {
  std::string name;
  for (const char c : described.substr(0, described.find('(')))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return fmt::format("{}_node{}", name, number);
}

// "37632.000"
Bytes size_of_field(const Lines& lines, std::string_view text) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) ||
      value > static_cast<double>(kLargest.value))
    lines.fail(fmt::format("parameter_size: expected a number of bytes, got \"{}\"", text));
  return {std::llround(value)};
}

// The numbers, each behind those that it reads.
std::vector<int> in_order(const Lines& lines, const std::map<int, Node>& nodes) {
  std::map<int, std::vector<int>> to;
  std::map<int, std::size_t> missing;
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (const auto& [number, node] : nodes) {
    missing[number] = node.from.size();
    for (const int from : node.from) to[from].push_back(number);
    if (node.from.empty()) ready.push(number);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int next : to[order.back()])
      if (--missing[next] == 0) ready.push(next);
  }
  if (order.size() < nodes.size())
    lines.fail("the edges have a cycle: expected layers that run one after another");
  return order;
}

}  // namespace

TraceJob import_pipedream(const std::string& text, const std::string& origin) {
  Lines lines(text, origin);
  std::map<int, Node> nodes;
  std::set<std::pair<int, int>> edges;
  for (std::string_view line; lines.next(line);) {
    if (trimmed(line).empty()) continue;
    const auto parts = parts_of(line);
    const int number = node_number(lines, parts[0]);
    if (parts.size() == 2) {
      const int to = node_number(lines, parts[1]);
      if (!nodes.contains(number) || !nodes.contains(to))
        lines.fail("an edge between nodes that are not there");
      if (edges.insert({number, to}).second) nodes[to].from.push_back(number);
      continue;
    }
    if (parts.size() < 3)
      lines.fail("expected \"node1 -- what it is -- forward_compute_time=..., ...\" or \"node1 -- node2\"");
    if (nodes.contains(number)) lines.fail(fmt::format("node{} is there twice", number));
    Node& node = nodes[number];
    node.is_input = parts[1].starts_with("Input");
    node.layer.name = layer_name(parts[1], number);
    node.layer.forward =
        duration_of(lines, field_of(lines, parts[2], "forward_compute_time"), "forward_compute_time", 1e6);
    node.layer.backward =
        duration_of(lines, field_of(lines, parts[2], "backward_compute_time"), "backward_compute_time", 1e6);
    node.layer.gradient = size_of_field(lines, field_of(lines, parts[2], "parameter_size"));
  }
  std::set<int> joined;
  for (const auto& [from, to] : edges) joined.insert({from, to});
  if (nodes.size() > 1)
    for (const auto& [number, node] : nodes)
      if (!joined.contains(number))
        lines.fail(fmt::format("expected an edge from or to node{}: the file is cut", number));
  TraceJob read{.kind = TraceKind::pipedream};
  Job& job = read.job;
  job.name = name_of_file(origin);
  std::map<int, int> index;
  for (const int number : in_order(lines, nodes)) {
    const Node& node = nodes[number];
    if (node.is_input) {
      job.input.value += node.layer.forward.value;
      continue;
    }
    index[number] = static_cast<int>(job.layers.size());
    Layer& layer = job.layers.emplace_back(node.layer);
    for (const int from : node.from)
      if (const auto at = index.find(from); at != index.end()) layer.after.push_back(at->second);
    std::sort(layer.after.begin(), layer.after.end());
    if (layer.after == std::vector<int>{static_cast<int>(job.layers.size()) - 2}) layer.after.clear();
  }
  read.notes.emplace_back("one worker's profile: it has no communication, and no optimiser");
  return checked(std::move(read), origin);
}

}  // namespace talweg::train
