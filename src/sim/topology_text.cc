#include "sim/topology_text.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <sstream>
#include <vector>

#include "base/fail.h"
#include "sim/topologies.h"

namespace talweg::sim {

namespace {

constexpr int kMost = 1 << 20;

// The numbers of one topology; says which are left over.
class Numbers {
 public:
  explicit Numbers(const std::string& text) : text_(text), kind_(text.substr(0, text.find(':'))) {
    if (kind_.size() == text.size()) return;
    std::istringstream list(text.substr(kind_.size() + 1));
    for (std::string item; std::getline(list, item, ',');) {
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos) refuse(fmt::format("expected name=value, got \"{}\"", item));
      if (!values_.emplace(item.substr(0, equals), item.substr(equals + 1)).second)
        refuse(fmt::format("\"{}\" is written twice", item.substr(0, equals)));
    }
  }
  const std::string& kind() const { return kind_; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw_error(ErrorCode::invalid_argument, "topology {}: {}", text_, why);
  }
  std::string word(const char* name, const std::string& otherwise) {
    const auto it = values_.find(name);
    if (it == values_.end()) return otherwise;
    std::string value = it->second;
    values_.erase(it);
    return value;
  }
  int number(const char* name, int otherwise) { return parse(name, word(name, std::to_string(otherwise))); }
  int parse(const char* name, const std::string& word) const {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 1 || value > kMost)
      refuse(fmt::format("{}: expected a number from 1 to {}, got \"{}\"", name, kMost, word));
    return value;
  }
  LinkShape link() {
    shape_.capacity = parse_bandwidth(word("rate", "10G"));
    check("rate", shape_);
    shape_.latency = parse_nanoseconds(word("latency", "1us"));
    check("latency", shape_);
    return shape_;
  }
  // The same as the hosts' but for what is said; after link().
  LinkShape up() {
    LinkShape shape = shape_;
    const std::string rate = word("up", "");
    if (!rate.empty()) shape.capacity = parse_bandwidth(rate);
    check("up", shape);
    return shape;
  }
  void done() const {
    if (!values_.empty()) refuse(fmt::format("\"{}\" is not known here", values_.begin()->first));
  }

 private:
  // `name` was the last to change. A problem reads "link h0->switch: expected ...".
  void check(const char* name, const LinkShape& shape) const {
    if (const auto problem = cluster::find_problem(star(1, shape)))
      refuse(name + problem->text.substr(problem->text.find(':')));
  }

  const std::string text_;
  const std::string kind_;
  std::map<std::string, std::string> values_;
  LinkShape shape_;
};

std::vector<int> dimensions(Numbers& n) {
  std::vector<int> all;
  std::istringstream list(n.word("dims", "4x4") +
                          "x");  // so that nothing behind the last x is something, too
  for (std::string item; std::getline(list, item, 'x');) all.push_back(n.parse("dims", item));
  return all;
}

}  // namespace

cluster::Cluster parse_topology(const std::string& text) {
  Numbers n(text);
  const LinkShape link = n.link();
  if (n.kind() == "star") {
    const int hosts = n.number("hosts", 16);
    n.done();
    return star(hosts, link);
  }
  if (n.kind() == "leaf-spine") {
    const int leaves = n.number("leaves", 4), hosts = n.number("hosts", 4), spines = n.number("spines", 4);
    const LinkShape up = n.up();
    n.done();
    return leaf_spine(leaves, hosts, spines, link, up);
  }
  if (n.kind() == "fat-tree") {
    const int hosts = n.number("hosts", 16), tiers = n.number("tiers", 3);
    const int over = n.number("oversubscription", 1);
    n.done();
    return fat_tree(hosts, tiers, over, link);
  }
  if (n.kind() == "torus") {
    const std::vector<int> dims = dimensions(n);
    const LinkShape up = n.up();
    n.done();
    return torus(dims, link, up);
  }
  if (n.kind() == "dragonfly") {
    const int routers = n.number("routers", 4), hosts = n.number("hosts", 2), global = n.number("global", 1);
    const LinkShape up = n.up();
    n.done();
    return dragonfly(routers, hosts, global, link, up);
  }
  n.refuse("expected star, leaf-spine, fat-tree, torus or dragonfly");
}

}  // namespace talweg::sim
