#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/host_port.h"
#include "cluster/cluster.h"
#include "talweg/error.h"
#include "text/escape.h"
#include "text/yaml_reader.h"

namespace talweg::cluster {
namespace {

constexpr std::pair<NodeKind, const char*> kKinds[] = {
    {NodeKind::worker, "worker"}, {NodeKind::switch_, "switch"}, {NodeKind::aggregator, "aggregator"}};

const char* kind_name(NodeKind kind) {
  return std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.first == kind; })
      ->second;
}

NodeKind parse_kind(const text::YamlReader& reader) {
  const std::string text = reader.text();
  for (const auto& [kind, name] : kKinds) {
    if (text == name) return kind;
  }
  reader.expected("worker, switch or aggregator");
}

Bandwidth parse_capacity(const text::YamlReader& reader) {
  try {
    return parse_bandwidth(reader.text());
  } catch (const Error&) {
    reader.expected("a bandwidth such as 1Gbit/s");
  }
}

Nanoseconds parse_latency(const text::YamlReader& reader) {
  try {
    return parse_nanoseconds(reader.text());
  } catch (const Error&) {
    reader.expected("a time such as 30us");
  }
}

// YYYY-MM-DDTHH:MM:SSZ, in numbers that a calendar and a clock have.
bool is_moment(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kForm[i]) return false;
  const auto number = [&](std::size_t at) { return (text[at] - '0') * 10 + text[at + 1] - '0'; };
  const int month = number(5), day = number(8);
  return month >= 1 && month <= 12 && day >= 1 && day <= 31 && number(11) < 24 && number(14) < 60 &&
         number(17) <= 60;
}

double parse_confidence(const text::YamlReader& reader) {
  const double part = reader.at_least_zero();
  if (part >= 1) reader.expected("a part of the rates, such as 0.05 for 5 %");
  return part;
}

std::string parse_measured(const text::YamlReader& reader) {
  std::string text = reader.text();
  if (!is_moment(text)) reader.expected("a time such as 2026-03-01T12:00:00Z");
  return text;
}

Processor parse_processor(const text::YamlReader& reader) {
  reader.allow_keys({"message", "copy", "sum"});
  Processor processor;
  if (const auto time = reader.optional("message")) processor.message = parse_latency(*time);
  if (const auto rate = reader.optional("copy")) processor.copy = parse_capacity(*rate);
  if (const auto rate = reader.optional("sum")) processor.sum = parse_capacity(*rate);
  return processor;
}

Bytes parse_burst(const text::YamlReader& reader) {
  try {
    return parse_bytes(reader.text());
  } catch (const Error&) {
    reader.expected("a size such as 128KiB");
  }
}

std::string parse_switch(const text::YamlReader& reader) {
  std::string place = reader.text();
  if (!parse_host_port(place)) reader.expected("an address and a port, such as \"10.0.0.9:4711\"");
  return place;
}

// Collects the cluster and, for each of its entries, where it was written.
class ClusterParser {
 public:
  explicit ClusterParser(const text::YamlReader& document) : document_(document) {}

  Cluster parse() {
    document_.allow_keys({"nodes", "links", "groups", "shared_cores", "processor", "confidence", "measured"});
    if (const auto cores = document_.optional("shared_cores"))
      cluster_.shared_cores = static_cast<int>(cores->integer(1, 1 << 16));
    if (const auto costs = document_.optional("processor")) cluster_.processor = parse_processor(*costs);
    if (const auto part = document_.optional("confidence")) cluster_.confidence = parse_confidence(*part);
    if (const auto moment = document_.optional("measured")) cluster_.measured = parse_measured(*moment);
    parse_nodes(document_.required("nodes").items());
    complain(find_problem(cluster_, Section::nodes));
    if (const auto links = document_.optional("links")) {
      for (const text::YamlReader& link : links->items()) parse_link(link);
    }
    complain(find_problem(cluster_, Section::links));
    if (const auto groups = document_.optional("groups")) {
      for (const text::YamlReader& group : groups->items()) parse_group(group);
    }
    complain(find_problem(cluster_));
    return std::move(cluster_);
  }

 private:
  std::vector<text::YamlReader>& written(Section section) { return written_[static_cast<int>(section)]; }

  void complain(const std::optional<Problem>& problem) {
    if (!problem) return;
    const auto& entries = written(problem->section);
    const auto index = static_cast<std::size_t>(problem->index);
    (index < entries.size() ? entries[index] : document_).fail(problem->text);
  }

  void parse_nodes(const std::vector<text::YamlReader>& items) {
    std::vector<std::pair<Node, const text::YamlReader*>> nodes;
    for (const text::YamlReader& item : items) {
      item.allow_keys({"name", "kind", "multicast", "aggregate", "switch", "above"});
      Node node{.name = item.required("name").text()};
      if (const auto kind = item.optional("kind")) node.kind = parse_kind(*kind);
      if (const auto flag = item.optional("multicast")) node.can_multicast = flag->boolean();
      if (const auto flag = item.optional("aggregate")) node.can_aggregate = flag->boolean();
      if (const auto place = item.optional("switch")) node.switch_at = parse_switch(*place);
      if (const auto above = item.optional("above")) node.above = above->text();
      nodes.emplace_back(std::move(node), &item);
    }
    std::stable_partition(nodes.begin(), nodes.end(),
                          [](const auto& entry) { return entry.first.kind == NodeKind::worker; });
    for (auto& [node, item] : nodes) {
      node_by_name_.emplace(node.name, static_cast<int>(cluster_.nodes.size()));
      cluster_.nodes.push_back(std::move(node));
      written(Section::nodes).push_back(*item);
    }
  }

  int parse_node(const text::YamlReader& reader) const {
    const auto found = node_by_name_.find(reader.text());
    if (found == node_by_name_.end()) reader.expected("the name of a node");
    return found->second;
  }

  void parse_link(const text::YamlReader& reader) {
    reader.allow_keys({"between", "from", "to", "capacity", "latency", "burst"});
    Link link;
    const auto between = reader.optional("between");
    if (between) {
      const auto ends = between->items();
      if (ends.size() != 2) between->expected("two nodes such as [host0, switch]");
      if (reader.optional("from") || reader.optional("to")) {
        reader.fail("expected either \"between\", or \"from\" and \"to\"");
      }
      link.from = parse_node(ends[0]);
      link.to = parse_node(ends[1]);
    } else if (reader.optional("from") || reader.optional("to")) {
      link.from = parse_node(reader.required("from"));
      link.to = parse_node(reader.required("to"));
    } else {
      reader.fail("expected a key \"between\", or \"from\" and \"to\"");
    }
    link.capacity = parse_capacity(reader.required("capacity"));
    if (const auto latency = reader.optional("latency")) link.latency = parse_latency(*latency);
    if (const auto burst = reader.optional("burst")) link.burst = parse_burst(*burst);
    add_link(link, reader);
    if (between && link.from != link.to) {
      std::swap(link.from, link.to);
      add_link(link, reader);
    }
  }

  void add_link(const Link& link, const text::YamlReader& reader) {
    const auto name = [&](int node) { return cluster_.nodes[static_cast<std::size_t>(node)].name; };
    link_by_name_.emplace(name(link.from) + "->" + name(link.to), static_cast<int>(cluster_.links.size()));
    cluster_.links.push_back(link);
    written(Section::links).push_back(reader);
  }

  void parse_group(const text::YamlReader& reader) {
    reader.allow_keys({"name", "capacity", "links"});
    CapacityGroup group{.name = reader.required("name").text(),
                        .capacity = parse_capacity(reader.required("capacity")),
                        .links = {}};
    for (const text::YamlReader& link : reader.required("links").items()) {
      const auto found = link_by_name_.find(link.text());
      if (found == link_by_name_.end())
        link.expected("a link such as host0->switch that is listed in \"links\"");
      group.links.push_back(found->second);
    }
    cluster_.groups.push_back(std::move(group));
    written(Section::groups).push_back(reader);
  }

  text::YamlReader document_;
  Cluster cluster_;
  std::vector<text::YamlReader> written_[3];  // by Section
  std::map<std::string, int> node_by_name_;
  std::map<std::string, int> link_by_name_;
};

bool is_way_back(const Link& link, const Link& other) {
  return link.from == other.to && link.to == other.from && link.capacity == other.capacity &&
         link.latency == other.latency && link.burst == other.burst;
}

// Both file forms are this tree; keys come out in the order in which people read them.
nlohmann::ordered_json to_tree(const Cluster& cluster) {
  const auto name = [&](int node) { return cluster.nodes[static_cast<std::size_t>(node)].name; };
  nlohmann::ordered_json tree;
  tree["nodes"] = nlohmann::ordered_json::array();
  for (const Node& node : cluster.nodes) {
    nlohmann::ordered_json entry{{"name", node.name}, {"kind", kind_name(node.kind)}};
    if (node.can_multicast) entry["multicast"] = true;
    if (node.can_aggregate) entry["aggregate"] = true;
    if (!node.switch_at.empty()) entry["switch"] = node.switch_at;
    if (!node.above.empty()) entry["above"] = node.above;
    tree["nodes"].push_back(std::move(entry));
  }
  tree["links"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    nlohmann::ordered_json entry;
    if (i + 1 < cluster.links.size() && is_way_back(link, cluster.links[i + 1])) {
      entry["between"] = {name(link.from), name(link.to)};
      ++i;
    } else {
      entry["from"] = name(link.from);
      entry["to"] = name(link.to);
    }
    entry["capacity"] = to_string(link.capacity);
    entry["latency"] = to_string(link.latency);
    if (link.burst.value > 0) entry["burst"] = to_string(link.burst);
    tree["links"].push_back(std::move(entry));
  }
  for (const CapacityGroup& group : cluster.groups) {
    auto links = nlohmann::ordered_json::array();
    for (const int index : group.links) {
      const Link& link = cluster.links[static_cast<std::size_t>(index)];
      links.push_back(name(link.from) + "->" + name(link.to));
    }
    tree["groups"].push_back(
        {{"name", group.name}, {"capacity", to_string(group.capacity)}, {"links", std::move(links)}});
  }
  if (cluster.shared_cores > 0) tree["shared_cores"] = cluster.shared_cores;
  const Processor& processor = cluster.processor;
  if (processor.message.value > 0) tree["processor"]["message"] = to_string(processor.message);
  if (processor.copy.bits_per_second > 0) tree["processor"]["copy"] = to_string(processor.copy);
  if (processor.sum.bits_per_second > 0) tree["processor"]["sum"] = to_string(processor.sum);
  if (cluster.confidence > 0) tree["confidence"] = cluster.confidence;
  if (!cluster.measured.empty()) tree["measured"] = cluster.measured;
  return tree;
}

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& origin) {
  return ClusterParser(text::read_document(text, origin)).parse();
}

Cluster load_cluster(const std::string& path) {
  return parse_cluster(text::read_file(path), path);
}

// Every entry is a line of JSON, which is YAML's flow style.
std::string to_yaml(const Cluster& cluster) {
  std::string text;
  const auto tree = to_tree(cluster);
  for (const auto& [section, entries] : tree.items()) {
    if (!entries.is_array()) {
      text += fmt::format("{}: {}\n", section, entries.dump());
      continue;
    }
    text += fmt::format("{}:{}\n", section, entries.empty() ? " []" : "");
    for (const auto& entry : entries) text += fmt::format("  - {}\n", entry.dump());
  }
  return text::json_unsteered(text);
}

std::string to_json(const Cluster& cluster) {
  return text::json_unsteered(to_tree(cluster).dump(2)) + "\n";
}

}  // namespace talweg::cluster
