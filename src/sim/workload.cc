#include "sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "forest/planner.h"
#include "sim/bounded_sums.h"
#include "sim/queue_policy.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::sim {

namespace {

constexpr double kMostJitter = 0.25;  // no compute time is drawn below zero
constexpr double kMostMayLose = 0.5;  // as check_bounded_sums() has it

class Names {
 public:
  explicit Names(const cluster::Cluster& cluster) : cluster_(cluster) {
    for (std::size_t n = 0; n < cluster.nodes.size(); ++n)
      node_.emplace(cluster.nodes[n].name, static_cast<int>(n));
  }
  std::optional<int> node(const std::string& name) const {
    const auto it = node_.find(name);
    return it == node_.end() ? std::nullopt : std::optional(it->second);
  }
  std::vector<int> links(int from, int to) const {
    std::vector<int> found;
    for (std::size_t l = 0; l < cluster_.links.size(); ++l)
      if (cluster_.links[l].from == from && cluster_.links[l].to == to) found.push_back(static_cast<int>(l));
    return found;
  }
  const cluster::Cluster& cluster() const { return cluster_; }

 private:
  const cluster::Cluster& cluster_;
  std::map<std::string, int> node_;
};

NetworkChange from_name(const std::string& what, const Names& names) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorCode::invalid_argument, text); };
  NetworkChange change;
  if (const auto node = names.node(what)) {
    change.node = *node;
    return change;
  }
  const std::size_t arrow = what.find("->");
  if (arrow == std::string::npos) refuse(fmt::format("there is no node \"{}\"", what));
  int ends[2];
  for (const bool second : {false, true}) {
    const std::string name = second ? what.substr(arrow + 2) : what.substr(0, arrow);
    const auto node = names.node(name);
    if (!node) refuse(fmt::format("there is no node \"{}\"", name));
    ends[second ? 1 : 0] = *node;
  }
  change.links = names.links(ends[0], ends[1]);
  if (change.links.empty()) refuse(fmt::format("there is no link {}", what));
  return change;
}

class Reader {
 public:
  explicit Reader(const cluster::Cluster& cluster) : names_(cluster), workers_(cluster.workers()) {}

  Workload read(const text::YamlReader& document) {
    document.allow_keys({"groups", "flows", "background", "changes"});
    each(document, "groups", [this](const text::YamlReader& y) { group(y); });
    each(document, "flows", [this](const text::YamlReader& y) { flow(y); });
    each(document, "background", [this](const text::YamlReader& y) { background(y); });
    each(document, "changes", [this](const text::YamlReader& y) { change(y); });
    if (w_.groups.empty() && w_.flows.empty() && w_.background.empty())
      document.fail("expected groups, flows or background");
    return std::move(w_);
  }

 private:
  template <typename Call>
  static void each(const text::YamlReader& document, const char* key, Call&& call) {
    if (const auto list = document.optional(key))
      for (const text::YamlReader& item : list->items()) call(item);
  }
  // A quantity with a unit, or what `parse` has to say about it.
  template <typename Parse>
  static auto quantity(const text::YamlReader& y, Parse&& parse) {
    try {
      return parse(y.text());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::bad_file) throw;
      y.fail(error.what());
    }
  }
  static Nanoseconds time(const text::YamlReader& y, const char* key, Nanoseconds otherwise = {}) {
    const auto value = y.optional(key);
    return value ? quantity(*value, [](const std::string& t) { return parse_nanoseconds(t); }) : otherwise;
  }
  static std::int64_t bytes(const text::YamlReader& y, std::int64_t least) {
    const std::int64_t value = quantity(y, [](const std::string& t) { return parse_bytes(t); }).value;
    if (value < least) y.expected(fmt::format("a size of at least {} B", least));
    return value;
  }
  static int priority(const text::YamlReader& y) {
    const auto value = y.optional("priority");
    return value ? static_cast<int>(value->integer(0, kPriorities - 1)) : 0;
  }
  int node(const text::YamlReader& y) const {
    const auto found = names_.node(y.text());
    if (!found) y.expected("the name of a node");
    return *found;
  }
  int worker(const text::YamlReader& y) const {
    const int n = node(y);
    if (n >= workers_) y.expected("the name of a worker");
    return n;
  }
  std::vector<int> all_workers() const {
    std::vector<int> all(static_cast<std::size_t>(workers_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  void group(const text::YamlReader& y) {
    y.allow_keys({"name", "ranks", "start", "priority", "repeat", "jitter", "may_lose", "may_lose_sender",
                  "may_lose_call", "droppable", "queues", "steps"});
    WorkloadGroup& g = w_.groups.emplace_back();
    const auto name = y.optional("name");
    g.name = name ? name->text() : fmt::format("group{}", w_.groups.size() - 1);
    for (std::size_t i = 0; i + 1 < w_.groups.size(); ++i)
      if (w_.groups[i].name == g.name)
        (name ? *name : y)
            .fail(fmt::format("expected a name of its own: there are two groups \"{}\"", g.name));
    ranks(y.required("ranks"), g);
    g.start = time(y, "start");
    g.priority = priority(y);
    if (const auto repeat = y.optional("repeat")) g.repeat = static_cast<int>(repeat->integer(1, 1 << 30));
    if (const auto jitter = y.optional("jitter")) g.jitter = share(*jitter, kMostJitter);
    if (const auto may_lose = y.optional("may_lose")) g.may_lose = share(*may_lose, kMostMayLose);
    if (const auto limit = y.optional("may_lose_sender")) g.may_lose_sender = share(*limit, g.may_lose);
    if (const auto limit = y.optional("may_lose_call")) g.may_lose_call = share(*limit, g.may_lose);
    if (const auto droppable = y.optional("droppable")) g.droppable = share(*droppable, 1);
    if (const auto queues = y.optional("queues"))
      g.queues = static_cast<int>(queues->integer(1, kMostQueues));
    for (const text::YamlReader& s : y.required("steps").items()) g.steps.push_back(step(s, g));
    if (g.steps.empty()) y.fail("expected at least one step");
    const auto bounded = std::ranges::find(g.steps, kBounded, &WorkloadStep::algorithm);
    for (const char* part : {"may_lose", "may_lose_sender", "may_lose_call", "droppable", "queues"})
      if (bounded == g.steps.end() && y.optional(part))
        y.required(part).fail("nothing is lost here: expected a step whose algorithm is bounded");
    for (const WorkloadStep& s : g.steps)
      if (s.algorithm == kBounded && s.type != bounded->type)
        y.required("steps").fail("expected one type of all steps whose algorithm is bounded");
  }
  void ranks(const text::YamlReader& y, WorkloadGroup& g) const {
    if (y.is_word()) {
      if (y.text() != "all") y.expected("a list of workers, or all");
      g.nodes = all_workers();
      return;
    }
    for (const text::YamlReader& r : y.items()) {
      g.nodes.push_back(worker(r));
      if (std::ranges::count(g.nodes, g.nodes.back()) > 1) r.fail("a worker comes twice");
    }
    if (g.nodes.empty()) y.fail("expected at least one worker");
  }
  static double share(const text::YamlReader& y, double most) {
    std::string text = y.text();
    const bool percent = text.ends_with("%");
    if (percent) text.pop_back();
    const auto number = text::read_number(text);
    const double value = number ? *number / (percent ? 100 : 1) : -1;
    if (!(value >= 0 && value <= most)) y.expected(fmt::format("a share from 0 to {}, such as 5%", most));
    return value;
  }
  static WorkloadStep step(const text::YamlReader& y, const WorkloadGroup& g) {
    y.allow_keys({"compute", "op", "bytes", "type", "root", "algo", "algorithm", "depth"});
    WorkloadStep s;
    if (y.optional("compute")) {
      for (const char* key : {"op", "bytes", "type", "root", "algo", "algorithm", "depth"})
        if (y.optional(key)) y.fail(fmt::format("a step that computes has no \"{}\"", key));
      s.compute = time(y, "compute");
      return s;
    }
    const text::YamlReader op = y.required("op");
    s.op = parse_collective(op.text());
    if (!s.op) op.expected("a collective such as all_reduce");
    if (*s.op != Collective::barrier) s.bytes = bytes(y.required("bytes"), 0);
    if (const auto type = y.optional("type")) {
      const auto parsed = parse_data_type(type->text());
      if (!parsed) type->expected("a data type such as float");
      s.type = *parsed;
    }
    const auto ranks = static_cast<int>(g.nodes.size());
    const auto size = static_cast<std::int64_t>(size_of(s.type));
    const auto request = forest::even_request(*s.op, ranks, 0, s.bytes / size, size);
    if (*s.op != Collective::barrier && request.counts[0] == 0)
      y.required("bytes").expected(s.bytes < size
                                       ? fmt::format("at least one element of {}, {} B", name(s.type), size)
                                       : fmt::format("at least one element of {} for each of {} ranks, {} B",
                                                     name(s.type), ranks, size * ranks));
    if (const auto root = y.optional("root"))
      s.root = static_cast<int>(root->integer(0, static_cast<std::int64_t>(g.nodes.size()) - 1));
    const auto depth = y.optional("depth");
    // As it is called on the command line, or in full.
    const auto algo = y.optional("algo");
    if (const auto algorithm = algo ? algo : y.optional("algorithm")) {
      s.algorithm = algorithm->text();
      if (s.algorithm == kBounded) {
        if (*s.op != Collective::all_reduce) algorithm->fail("bounded loss is of all_reduce alone");
        if (depth) s.depth = share(*depth, 1);
        return s;
      }
      const auto* planner =
          quantity(*algorithm, [](const std::string& t) { return &forest::find_planner(t); });
      if (!planner->serves(forest::even_request(*s.op, static_cast<int>(g.nodes.size()), s.root, 0, 1)))
        algorithm->fail(fmt::format("{} does not serve {}", s.algorithm, name(*s.op)));
    }
    if (depth) depth->fail("layers have no priorities here: expected a step whose algorithm is bounded");
    return s;
  }

  void flow(const text::YamlReader& y) {
    y.allow_keys({"from", "to", "bytes", "start", "priority", "route"});
    Workload::Flow& f = w_.flows.emplace_back();
    Connection& c = f.connection;
    c.id = static_cast<int>(w_.flows.size());
    c.line = y.line();
    c.from = worker(y.required("from"));
    c.to = worker(y.required("to"));
    if (c.from == c.to) y.fail("a flow to itself");
    c.bytes = bytes(y.required("bytes"), 1);
    c.start = picoseconds(time(y, "start"));
    c.priority = priority(y);
    if (const auto route = y.optional("route")) f.route = links_of(*route, c);
  }
  // Loops are found here, where the line is known.
  std::vector<int> links_of(const text::YamlReader& y, const Connection& c) const {
    std::vector<int> nodes;
    for (const text::YamlReader& item : y.items()) {
      nodes.push_back(node(item));
      if (std::ranges::count(nodes, nodes.back()) > 1)
        item.fail(fmt::format("a loop: the route comes to {} twice", item.text()));
    }
    if (nodes.size() < 2 || nodes.front() != c.from || nodes.back() != c.to)
      y.fail("a route goes from the flow's sender to its receiver");
    std::vector<int> links;
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
      const auto between = names_.links(nodes[i], nodes[i + 1]);
      if (between.empty())
        y.fail(fmt::format("there is no link {}->{}", name_of(nodes[i]), name_of(nodes[i + 1])));
      links.push_back(between[0]);
    }
    return links;
  }
  const std::string& name_of(int node) const {
    return names_.cluster().nodes[static_cast<std::size_t>(node)].name;
  }

  void background(const text::YamlReader& y) {
    y.allow_keys({"from", "to", "rate", "packet", "burst", "start", "end", "priority"});
    BackgroundTraffic& b = w_.background.emplace_back();
    const text::YamlReader from = y.required("from");
    b.from = from.text() == "all" ? all_workers() : std::vector<int>{worker(from)};
    const text::YamlReader to = y.required("to");
    if (to.text() != "random") b.to = worker(to);
    if (workers_ < 2) to.fail("there is no other worker");
    if (b.from.size() > 1) std::erase(b.from, b.to);  // of all
    if (b.from[0] == b.to) to.fail("expected another worker than the one in \"from\"");
    b.rate = quantity(y.required("rate"), [](const std::string& t) { return parse_bandwidth(t); });
    if (const auto packet = y.optional("packet"))
      b.packet_bytes = static_cast<std::uint16_t>(packet->integer(64, 65535));
    if (const auto burst = y.optional("burst")) {
      if (y.optional("packet")) burst->fail("a burst is a flow, whose packets are the transport's");
      b.burst_bytes = bytes(*burst, 1);
    }
    b.start = time(y, "start");
    b.end = time(y, "end", b.end);
    if (const auto end = y.optional("end"); end && b.end <= b.start) end->expected("a time after its start");
    b.priority = priority(y);
  }
  void change(const text::YamlReader& y) {
    y.allow_keys({"at", "fail", "repair"});
    const auto fail = y.optional("fail");
    const auto repair = y.optional("repair");
    if (fail.has_value() == repair.has_value()) y.fail("expected fail or repair");
    const text::YamlReader& what = fail ? *fail : *repair;
    NetworkChange change = quantity(what, [this](const std::string& t) { return from_name(t, names_); });
    change.at = time(y, "at");
    change.up = repair.has_value();
    w_.changes.push_back(std::move(change));
  }

  const Names names_;
  const int workers_;
  Workload w_;
};

}  // namespace

Workload parse_workload(const std::string& text, const std::string& origin, const cluster::Cluster& cluster) {
  return Reader(cluster).read(text::read_document(text, origin));
}

NetworkChange change_of(const std::string& what, const cluster::Cluster& cluster) {
  return from_name(what, Names(cluster));
}

}  // namespace talweg::sim
