#include "forest/untangle.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "base/at.h"

namespace talweg::forest {
namespace {

using Parents = std::vector<NodeId>;

constexpr double kLessTime = 1e-9;           // of the time of two edges: less is rounding
constexpr double kMoreUse = 1e-9;            // of a resource: likewise
constexpr std::int64_t kStepsPerEdge = 100;  // to look up what an edge uses

class Untangling {
 public:
  Untangling(const TreeMarket& market, WorkLimit* limit)
      : market_(market), workers_(market.workers()), limit_(limit) {
    spend(kStepsPerEdge * workers_ * workers_);
    for (NodeId from = 0; from < workers_; ++from)
      for (NodeId to = 0; to < workers_; ++to) ways_.push_back(look_up(from, to));
  }

  // Makes all exchanges that there are in a tree, whose data flow up or down its edges.
  void untangle(Parents& parents, NodeId& root, bool upward) {
    upward_ = upward;
    deepest_ = depth(parents, root);
    std::vector<NodeId> far;  // children of edges that are
    for (bool any = true; any;) {
      any = false;
      far.clear();
      for (NodeId child = 0; child < workers_; ++child)
        if (child != root && ways_[index({parents[at(child)], child})].far) far.push_back(child);
      spend(workers_ + std::ssize(far) * std::ssize(far));
      for (std::size_t one = 0; one < far.size(); ++one)
        for (std::size_t other = one + 1; other < far.size(); ++other)
          any = exchange(parents, root, far[one], far[other]) || any;
    }
  }

 private:
  struct Ends {
    NodeId parent = 0;
    NodeId child = 0;
  };
  // From one worker to another.
  struct Way {
    std::vector<PackingLp::Term> uses;                         // resources; none: there is no such edge
    double seconds = std::numeric_limits<double>::infinity();  // of all that it uses, at a rate of 1 bit/s
    bool far = false;  // uses more than the two workers' own links: else an exchange saves nothing
  };
  Way look_up(NodeId from, NodeId to) const {
    Way way{.uses = market_.resources_between(from, to)};
    if (!way.uses.empty()) way.seconds = 0;
    for (const auto& [link, part] : market_.links_between(from, to)) {
      way.far = way.far || (link != market_.stub(from).up && link != market_.stub(to).down);
    }
    for (const auto& use : way.uses) way.seconds += use.amount / market_.capacities()[at(use.row)];
    return way;
  }
  std::size_t index(const Ends& edge) const {
    const NodeId from = upward_ ? edge.child : edge.parent, to = upward_ ? edge.parent : edge.child;
    return at(from) * at(workers_) + at(to);
  }
  double seconds(const Ends& one, const Ends& other) const {
    return ways_[index(one)].seconds + ways_[index(other)].seconds;
  }
  void spend(std::int64_t steps) const {
    if (limit_ != nullptr) limit_->spend(steps);
  }

  // Whether `top` is on the way from `node` to the root.
  static bool is_below(const Parents& parents, NodeId node, NodeId top, NodeId root) {
    for (; node != top; node = parents[at(node)])
      if (node == root) return false;
    return true;
  }

  // Tries to exchange the edges that lead to c and to b.
  bool exchange(Parents& parents, NodeId& root, NodeId c, NodeId b) {
    if (c == root || b == root) return false;
    NodeId p = parents[at(c)], x = parents[at(b)];
    if (p == x || p == b || x == c) return false;
    const double before = seconds({p, c}, {x, b}) * (1 - kLessTime);
    const bool crosswise = seconds({p, b}, {x, c}) < before;
    const bool turned = market_.symmetric() && seconds({p, x}, {c, b}) < before;
    if (!crosswise && !turned) return false;
    if (is_below(parents, p, b, root)) {
      std::swap(p, x);
      std::swap(c, b);
    }
    const bool on_one_path = is_below(parents, x, c, root);
    if (on_one_path ? !turned : !crosswise) return false;
    const Ends one = on_one_path ? Ends{p, x} : Ends{p, b};
    const Ends other = on_one_path ? Ends{c, b} : Ends{x, c};
    if (some_carry_more({p, c}, {x, b}, one, other)) return false;
    Parents changed = parents;
    if (on_one_path) turn_round(changed, c, x);
    changed[at(one.child)] = one.parent;
    changed[at(other.child)] = other.parent;
    const NodeId top = market_.symmetric() ? centre(changed, root) : root;
    if (depth(changed, top) > deepest_) return false;
    parents = std::move(changed);
    root = top;
    return true;
  }

  // Of the nodes from x up to c each but x becomes a child of the one below it.
  static void turn_round(Parents& parents, NodeId c, NodeId x) {
    NodeId below = x;
    for (NodeId node = parents[at(x)];;) {
      const NodeId above = parents[at(node)];
      parents[at(node)] = below;
      if (node == c) return;
      below = node;
      node = above;
    }
  }

  // Whether any link or group carries more with the latter two edges than with the former.
  bool some_carry_more(const Ends& old_one, const Ends& old_other, const Ends& one, const Ends& other) {
    changes_.clear();
    const auto add = [&](const Ends& edge, double sign) {
      for (const auto& use : ways_[index(edge)].uses) {
        const auto known = std::ranges::find(changes_, use.row, &PackingLp::Term::row);
        if (known == changes_.end())
          changes_.push_back({use.row, sign * use.amount});
        else
          known->amount += sign * use.amount;
      }
    };
    add(old_one, -1);
    add(old_other, -1);
    add(one, 1);
    add(other, 1);
    return std::ranges::any_of(changes_, [](const auto& change) { return change.amount > kMoreUse; });
  }

  const TreeMarket& market_;
  const int workers_;
  WorkLimit* limit_;
  std::vector<Way> ways_;  // from by to
  std::vector<PackingLp::Term> changes_;
  bool upward_ = false;
  int deepest_ = 0;
};

}  // namespace

void untangle(const TreeMarket& market, std::vector<PackedTree>& trees, WorkLimit* limit) {
  Untangling untangling(market, limit);
  for (PackedTree& tree : trees) {
    auto& [root, up, down] = tree.trees;
    if (!down.empty()) untangling.untangle(down, root, false);
    if (market.symmetric())
      up = down;
    else if (!up.empty())
      untangling.untangle(up, root, true);
  }
}

}  // namespace talweg::forest
