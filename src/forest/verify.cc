#include "forest/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/at.h"
#include "base/collectives.h"
#include "base/fail.h"
#include "cluster/routing.h"
#include "forest/shared_sums.h"
#include "forest/walk.h"

namespace talweg::forest {
namespace {

[[noreturn]] void refuse_forest(const Forest& forest, const std::string& text) {
  throw_error(ErrorCode::invalid_argument, "{} forest for {}: {}", forest.planner, name(forest.request.op),
              text);
}

// Holds one tree to its structure.
class TreeVerifier {
 public:
  TreeVerifier(const Forest& forest, std::size_t index, const cluster::Cluster* cluster)
      : forest_(forest), tree_(forest.trees[index]), index_(index), cluster_(cluster) {}

  void verify() const {
    const auto& counts = forest_.request.counts;
    const auto elements = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Slice& slice = tree_.slice;
    // Written so that nothing can overflow, whatever the slice says.
    require(slice.offset >= 0 && slice.count >= 0 && slice.offset <= elements &&
                slice.count <= elements - slice.offset,
            [&] { return fmt::format("the slice leaves the vector of {} elements", elements); });
    require(tree_.chunk > 0, [&] { return fmt::format("chunk {}: expected more than 0", tree_.chunk); });
    require(is_node(tree_.root),
            [&] { return fmt::format("root {}: expected a node below {}", tree_.root, forest_.nodes); });
    verify_ranks(tree_.contributors, "contributors");
    verify_ranks(tree_.receivers, "receivers");
    verify_edges(tree_.up, tree_.contributors, "up", "contributor");
    verify_edges(tree_.down, tree_.receivers, "down", "receiver");
    verify_abilities();
    verify_contributions();
  }

 private:
  // `text` says why not: made only where it is needed, since every rank verifies what it is told to run.
  template <class Text>
  void require(bool holds, const Text& text) const {
    if (holds) return;
    refuse_forest(forest_, fmt::format("tree {} (slice {}+{}, root {}): {}", index_, tree_.slice.offset,
                                       tree_.slice.count, tree_.root, text()));
  }

  bool is_node(NodeId node) const { return node >= 0 && node < forest_.nodes; }

  void verify_ranks(const std::vector<NodeId>& ranks, const char* what) const {
    const auto ascends = std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
    const bool in_range = ranks.empty() || (ranks.front() >= 0 && ranks.back() < forest_.request.ranks);
    require(!ranks.empty() && ascends && in_range, [&] {
      return fmt::format("{} [{}]: expected ranks, sorted, each once", what, fmt::join(ranks, ", "));
    });
  }

  // `ends` are the nodes at which edges may end (leaves) and which all must be there.
  void verify_edges(const std::vector<Edge>& edges, const std::vector<NodeId>& ends, const char* direction,
                    const char* end_name) const {
    std::vector<bool> on_tree(at(forest_.nodes)), has_children(at(forest_.nodes));
    on_tree[at(tree_.root)] = true;
    for (const Edge& edge : edges) {
      const auto what = [&] { return fmt::format("{} edge {}-{}", direction, edge.child, edge.parent); };
      require(is_node(edge.child) && is_node(edge.parent),
              [&] { return fmt::format("{}: expected nodes below {}", what(), forest_.nodes); });
      require(edge.child != tree_.root, [&] { return what() + ": the root has a parent"; });
      require(!on_tree[at(edge.child)],
              [&] { return fmt::format("{}: node {} has two parents", what(), edge.child); });
      on_tree[at(edge.child)] = true;
      has_children[at(edge.parent)] = true;
    }
    require(outward(edges, tree_.root, forest_.nodes).size() == edges.size(),
            [&] { return fmt::format("some {} edges do not hang on the root", direction); });
    for (const NodeId end : ends) {
      require(on_tree[at(end)],
              [&] { return fmt::format("{} {} is not on the {} edges", end_name, end, direction); });
    }
    for (const Edge& edge : edges) {
      require(has_children[at(edge.child)] || std::ranges::binary_search(ends, edge.child), [&] {
        return fmt::format("{} edge {}-{}: node {} is a leaf but no {}", direction, edge.child, edge.parent,
                           edge.child, end_name);
      });
    }
  }

  void verify_abilities() const {
    if (cluster_ == nullptr) return;
    std::vector<int> inputs(at(forest_.nodes)), copies(at(forest_.nodes));
    for (const Edge& edge : tree_.up) ++inputs[at(edge.parent)];
    for (const Edge& edge : tree_.down) ++copies[at(edge.parent)];
    for (NodeId node = forest_.request.ranks; node < forest_.nodes; ++node) {
      const cluster::Node& inner = cluster_->nodes[at(node)];
      require(inputs[at(node)] <= 1 || can_aggregate(inner), [&] {
        return fmt::format("{} would sum {} inputs, but cannot aggregate", inner.name, inputs[at(node)]);
      });
      require(copies[at(node)] <= 1 || can_multicast(inner), [&] {
        return fmt::format("{} would make {} copies, but cannot multicast", inner.name, copies[at(node)]);
      });
    }
  }

  void verify_contributions() const {
    const Request& request = forest_.request;
    if (facts(request.op).sums) {
      require(std::ssize(tree_.contributors) == request.ranks, [&] {
        return fmt::format("contributors [{}]: expected all {} ranks", fmt::join(tree_.contributors, ", "),
                           request.ranks);
      });
    } else {
      require(tree_.contributors.size() == 1, [&] {
        return fmt::format("contributors [{}]: expected one rank", fmt::join(tree_.contributors, ", "));
      });
    }
    for (const NodeId rank : tree_.contributors) {
      require(input_offset(request, rank, tree_.slice) >= 0,
              [&] { return fmt::format("contributor {} does not have this slice", rank); });
    }
    for (const NodeId rank : tree_.receivers) {
      require(output_offset(request, rank, tree_.slice) >= 0,
              [&] { return fmt::format("receiver {} has no place for this slice", rank); });
    }
  }

  const Forest& forest_;
  const Tree& tree_;
  std::size_t index_;
  const cluster::Cluster* cluster_;
};

// What one rank receives, as runs of its output buffer.
struct Delivery {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t tree = 0;
};

void verify_cover(const Forest& forest, NodeId rank, std::vector<Delivery>& deliveries) {
  const bool has_it_already = forest.request.op == Collective::broadcast && rank == forest.request.root;
  std::ranges::sort(deliveries, [](const Delivery& a, const Delivery& b) { return a.begin < b.begin; });
  const auto missing = [&](std::int64_t begin, std::int64_t end) {
    if (begin < end && !has_it_already) {
      refuse_forest(
          forest, fmt::format("rank {} is never sent elements {} to {} of its output", rank, begin, end - 1));
    }
  };
  std::int64_t done = 0;
  std::size_t last = 0;
  for (const Delivery& delivery : deliveries) {
    missing(done, delivery.begin);
    if (delivery.begin < done) {
      refuse_forest(
          forest, fmt::format("rank {} is sent element {} of its output by trees {} and {}", rank,
                              delivery.begin, std::min(last, delivery.tree), std::max(last, delivery.tree)));
    }
    done = delivery.end;
    last = delivery.tree;
  }
  missing(done, output_count(forest.request, rank));
}

void verify_delivery(const Forest& forest) {
  const auto ranks = at(forest.request.ranks);
  std::vector<std::vector<Delivery>> deliveries(ranks);
  std::vector<int> barriers(ranks);
  for (std::size_t i = 0; i < forest.trees.size(); ++i) {
    const Tree& tree = forest.trees[i];
    for (const NodeId rank : tree.receivers) {
      ++barriers[at(rank)];
      if (tree.slice.count == 0) continue;
      const std::int64_t begin = output_offset(forest.request, rank, tree.slice);
      deliveries[at(rank)].push_back({begin, begin + tree.slice.count, i});
    }
  }
  for (NodeId rank = 0; rank < forest.request.ranks; ++rank) {
    verify_cover(forest, rank, deliveries[at(rank)]);
    if (forest.request.op == Collective::barrier && barriers[at(rank)] != 1) {
      refuse_forest(forest,
                    fmt::format("rank {} is reached by {} trees: expected one", rank, barriers[at(rank)]));
    }
  }
}

Verification measure_load(const Forest& forest, const cluster::Cluster& cluster,
                          const std::optional<SharedSums>& shared) {
  const cluster::Routes routes(cluster);
  Verification load{std::vector<Bytes>(cluster.links.size()), std::vector<Bytes>(cluster.groups.size())};
  std::vector<double> parts(cluster.links.size());  // of bytes that spread
  const auto send = [&](NodeId from, NodeId to, std::int64_t bytes) {
    if (!routes.reachable(from, to)) {
      refuse_forest(forest, fmt::format("no route leads from {} to {}", cluster.nodes[at(from)].name,
                                        cluster.nodes[at(to)].name));
    }
    routes.for_each_share(from, to, [&](int link, double part) {
      if (part == 1)
        load.link_bytes[at(link)].value += bytes;
      else
        parts[at(link)] += part * static_cast<double>(bytes);
    });
  };
  for (std::size_t i = 0; i < forest.trees.size(); ++i) {
    const Tree& tree = forest.trees[i];
    const std::int64_t bytes = tree.slice.count * forest.request.element_size;
    for (const Edge& edge : tree.up)
      if (!shared || shared->first(i, edge.child) == i) send(edge.child, edge.parent, bytes);
    for (const Edge& edge : tree.down) send(edge.parent, edge.child, bytes);
  }
  for (int link = 0; at(link) < parts.size(); ++link) {  // leaders come first
    const int leader = routes.leader(link);
    Bytes& own = load.link_bytes[at(link)];
    own = leader < link ? load.link_bytes[at(leader)] : Bytes{own.value + std::llround(parts[at(link)])};
  }
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    for (const int link : cluster.groups[g].links)
      load.group_bytes[g].value += load.link_bytes[at(link)].value;
  }
  return load;
}

}  // namespace

Verification verify(const Forest& forest, const cluster::Cluster* cluster) {
  validate(forest.request);
  if (forest.nodes < forest.request.ranks) {
    refuse_forest(
        forest, fmt::format("{} nodes: expected at least the {} ranks", forest.nodes, forest.request.ranks));
  }
  if (cluster != nullptr &&
      (cluster->workers() != forest.request.ranks || std::ssize(cluster->nodes) < forest.nodes)) {
    refuse_forest(forest,
                  fmt::format("{} ranks among {} nodes do not fit a cluster of {} workers among {} nodes",
                              forest.request.ranks, forest.nodes, cluster->workers(), cluster->nodes.size()));
  }
  for (std::size_t i = 0; i < forest.trees.size(); ++i) TreeVerifier(forest, i, cluster).verify();
  verify_delivery(forest);
  std::optional<SharedSums> shared;
  if (forest.sums_once) {
    try {
      shared.emplace(forest);
    } catch (const Error& error) {
      refuse_forest(forest, error.what());
    }
  }
  return cluster == nullptr ? Verification{} : measure_load(forest, *cluster, shared);
}

}  // namespace talweg::forest
