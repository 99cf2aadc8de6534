#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "talweg/error.h"
#include "text/escape.h"
#include "text/yaml_reader.h"
#include "train/job.h"

namespace talweg::train {
namespace {

// In all lists of layers: aliases make much of little text.
constexpr std::int64_t kMostNames = 1 << 20;

Nanoseconds read_time(const text::YamlReader& reader) {
  try {
    return parse_nanoseconds(reader.text());
  } catch (const Error&) {
    reader.expected("a time such as 2ms");
  }
}

Bytes read_size(const text::YamlReader& reader) {
  try {
    return parse_bytes(reader.text());
  } catch (const Error&) {
    reader.expected("a size such as 25MiB");
  }
}

void read_time(const text::YamlReader& map, const char* key, Nanoseconds& into) {
  if (const auto value = map.optional(key)) into = read_time(*value);
}

void read_size(const text::YamlReader& map, const char* key, Bytes& into) {
  if (const auto value = map.optional(key)) into = read_size(*value);
}

void read_op(const text::YamlReader& map, Collective& into) {
  const auto op = map.optional("op");
  if (!op) return;
  const auto parsed = parse_collective(op->text());
  if (!parsed) op->expected("a collective such as all_reduce");
  into = *parsed;
}

// Collects the job and, for each of its entries, where it was written.
class JobParser {
 public:
  explicit JobParser(const text::YamlReader& document) : document_(document) {}

  Job parse() {
    document_.allow_keys({"name", "origin", "ranks", "batch", "input", "copy", "update", "overhead", "step",
                          "in_flight", "backend", "layers", "exchanges", "probes"});
    job_.name = document_.required("name").text();
    job_.origin = parse_origin(document_.required("origin"));
    if (const auto ranks = document_.optional("ranks"))
      job_.ranks = static_cast<int>(ranks->integer(1, kMostRanks));
    if (const auto batch = document_.optional("batch"))
      job_.batch = static_cast<int>(batch->integer(0, std::numeric_limits<int>::max()));
    read_time(document_, "input", job_.input);
    read_time(document_, "copy", job_.copy);
    read_time(document_, "update", job_.update);
    read_time(document_, "overhead", job_.overhead);
    read_time(document_, "step", job_.step);
    if (const auto in_flight = document_.optional("in_flight"))
      job_.in_flight = static_cast<int>(in_flight->integer(1, kMostInFlight));
    if (const auto backend = document_.optional("backend")) job_.backend = backend->text();
    layers_ = document_.required("layers").items();
    for (const text::YamlReader& layer : layers_) parse_layer(layer);
    if (const auto exchanges = document_.optional("exchanges")) exchanges_ = exchanges->items();
    for (const text::YamlReader& exchange : exchanges_) parse_exchange(exchange);
    if (const auto probes = document_.optional("probes")) probes_ = probes->items();
    for (const text::YamlReader& probe : probes_) parse_probe(probe);
    if (const auto problem = find_problem(job_)) written(*problem).fail(problem->text);
    return std::move(job_);
  }

 private:
  static Origin parse_origin(const text::YamlReader& reader) {
    const std::string text = reader.text();
    for (const Origin origin : {Origin::measured, Origin::estimated})
      if (text == name(origin)) return origin;
    reader.expected("measured or estimated");
  }

  const text::YamlReader& written(const JobProblem& problem) const {
    if (problem.section == JobSection::layers) return layers_[at(problem.index)];
    if (problem.section == JobSection::exchanges) return exchanges_[at(problem.index)];
    if (problem.section == JobSection::probes) return probes_[at(problem.index)];
    return document_;
  }

  std::vector<int> parse_names(const text::YamlReader& list) {
    std::vector<int> numbers;
    for (const text::YamlReader& item : list.items()) {
      if (++names_ > kMostNames) item.fail(fmt::format("expected at most {} names of layers", kMostNames));
      const auto found = by_name_.find(item.text());
      if (found == by_name_.end()) item.expected("the name of a layer that is listed before");
      numbers.push_back(found->second);
    }
    return numbers;
  }

  void parse_layer(const text::YamlReader& reader) {
    reader.allow_keys(
        {"name", "forward", "backward", "update", "forward_gap", "backward_gap", "gradient", "after"});
    Layer layer{.name = reader.required("name").text()};
    read_time(reader, "forward", layer.forward);
    read_time(reader, "backward", layer.backward);
    read_time(reader, "update", layer.update);
    read_time(reader, "forward_gap", layer.forward_gap);
    read_time(reader, "backward_gap", layer.backward_gap);
    read_size(reader, "gradient", layer.gradient);
    if (const auto list = reader.optional("after")) layer.after = parse_names(*list);
    by_name_.emplace(layer.name, static_cast<int>(job_.layers.size()));
    job_.layers.push_back(std::move(layer));
  }

  void parse_exchange(const text::YamlReader& reader) {
    reader.allow_keys({"op", "layers", "bytes", "time", "wait"});
    Exchange exchange;
    read_op(reader, exchange.op);
    if (const auto list = reader.optional("layers")) exchange.layers = parse_names(*list);
    read_size(reader, "bytes", exchange.bytes);
    read_time(reader, "time", exchange.time);
    read_time(reader, "wait", exchange.wait);
    job_.exchanges.push_back(std::move(exchange));
  }

  void parse_probe(const text::YamlReader& reader) {
    reader.allow_keys({"op", "bytes", "time"});
    Probe probe;
    read_op(reader, probe.op);
    read_size(reader, "bytes", probe.bytes);
    read_time(reader, "time", probe.time);
    job_.probes.push_back(probe);
  }

  text::YamlReader document_;
  Job job_;
  std::vector<text::YamlReader> layers_, exchanges_, probes_;
  std::map<std::string, int> by_name_;
  std::int64_t names_ = 0;  // in all lists
};

using Tree = nlohmann::ordered_json;

template <class Unit>
void put(Tree& entry, const char* key, Unit value) {
  if (value.value != 0) entry[key] = to_string(value);
}

void put_names(Tree& entry, const char* key, const std::vector<int>& layers, const Job& job) {
  for (const int layer : layers) entry[key].push_back(job.layers[at(layer)].name);
}

// Both file forms are this tree; keys come out in the order in which people read them.
Tree to_tree(const Job& job) {
  Tree tree{{"name", job.name}, {"origin", name(job.origin)}};
  if (job.ranks != 1) tree["ranks"] = job.ranks;
  if (job.batch != 0) tree["batch"] = job.batch;
  put(tree, "input", job.input);
  put(tree, "copy", job.copy);
  put(tree, "update", job.update);
  put(tree, "overhead", job.overhead);
  put(tree, "step", job.step);
  if (job.in_flight != 1) tree["in_flight"] = job.in_flight;
  if (!job.backend.empty()) tree["backend"] = job.backend;
  tree["layers"] = Tree::array();
  for (const Layer& layer : job.layers) {
    Tree entry{{"name", layer.name}};
    put(entry, "forward", layer.forward);
    put(entry, "backward", layer.backward);
    put(entry, "update", layer.update);
    put(entry, "forward_gap", layer.forward_gap);
    put(entry, "backward_gap", layer.backward_gap);
    put(entry, "gradient", layer.gradient);
    put_names(entry, "after", layer.after, job);
    tree["layers"].push_back(std::move(entry));
  }
  for (const Exchange& exchange : job.exchanges) {
    Tree entry{{"op", name(exchange.op)}};
    put_names(entry, "layers", exchange.layers, job);
    put(entry, "bytes", exchange.bytes);
    put(entry, "time", exchange.time);
    put(entry, "wait", exchange.wait);
    tree["exchanges"].push_back(std::move(entry));
  }
  for (const Probe& probe : job.probes) {
    Tree entry{{"op", name(probe.op)}};
    put(entry, "bytes", probe.bytes);
    put(entry, "time", probe.time);
    tree["probes"].push_back(std::move(entry));
  }
  return tree;
}

}  // namespace

Job parse_job(const std::string& text, const std::string& origin) {
  return JobParser(text::read_document(text, origin)).parse();
}

Job load_job(const std::string& path) {
  return parse_job(text::read_file(path), path);
}

// Every entry is a line of JSON, which is YAML's flow style.
std::string to_yaml(const Job& job) {
  validate(job);
  std::string text;
  const Tree tree = to_tree(job);
  for (const auto& [key, value] : tree.items()) {
    if (!value.is_array()) {
      text += fmt::format("{}: {}\n", key, value.dump());
      continue;
    }
    text += fmt::format("{}:\n", key);
    for (const auto& entry : value) text += fmt::format("  - {}\n", entry.dump());
  }
  return text::json_unsteered(text);
}

std::string to_json(const Job& job) {
  validate(job);
  return text::json_unsteered(to_tree(job).dump(2)) + "\n";
}

}  // namespace talweg::train
