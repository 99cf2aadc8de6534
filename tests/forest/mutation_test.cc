// Every planner's forests, broken in seeded ways: what verify() accepts must be right by the oracle's
// account.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "forest/oracle.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

// Small enough for the oracle; slices that are empty, of one element and longer.
std::vector<Forest> small_forests() {
  std::vector<Forest> forests;
  for (const Planner& planner : planners()) {
    for (const Collective op : all_operations()) {
      for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        for (const bool uneven : {false, true}) {
          const Request request = make_request(op, ranks, uneven ? 2 : 11, uneven, ranks / 2);
          if (planner.serves(request)) forests.push_back(planner.plan(request, gigabit_star(ranks)));
        }
      }
    }
  }
  return forests;
}

bool accepted(const Forest& forest) {
  try {
    verify(forest);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return false;
  }
}

using Mutation = std::function<void(Forest&, Random&)>;

template <typename T>
T& pick(std::vector<T>& from, Random& random) {
  return from[random.below(from.size())];
}

Tree& any_tree(Forest& forest, Random& random) {
  return pick(forest.trees, random);
}

// One of the two edge lists, the other one if that is empty.
std::vector<Edge>& any_edges(Tree& tree, Random& random) {
  return tree.down.empty() || (!tree.up.empty() && random.below(2) == 0) ? tree.up : tree.down;
}

NodeId any_rank(const Forest& forest, Random& random) {
  return static_cast<NodeId>(random.below(static_cast<std::uint64_t>(forest.request.ranks)));
}

void sort(std::vector<NodeId>& ranks) {
  std::sort(ranks.begin(), ranks.end());
}

struct NamedMutation {
  const char* name;
  Mutation apply;
};

const std::vector<NamedMutation>& mutations() {
  static const std::vector<NamedMutation> table = {
      {"drop an edge",
       [](Forest& forest, Random& random) {
         auto& edges = any_edges(any_tree(forest, random), random);
         if (!edges.empty())
           edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(random.below(edges.size())));
       }},
      {"double an edge",
       [](Forest& forest, Random& random) {
         auto& edges = any_edges(any_tree(forest, random), random);
         if (!edges.empty()) edges.push_back(pick(edges, random));
       }},
      {"swap a parent",
       [](Forest& forest, Random& random) {
         auto& edges = any_edges(any_tree(forest, random), random);
         if (!edges.empty()) pick(edges, random).parent = any_rank(forest, random);
       }},
      {"turn an edge round",
       [](Forest& forest, Random& random) {
         auto& edges = any_edges(any_tree(forest, random), random);
         if (edges.empty()) return;
         Edge& edge = pick(edges, random);
         std::swap(edge.child, edge.parent);
       }},
      {"add an edge",
       [](Forest& forest, Random& random) {
         any_edges(any_tree(forest, random), random)
             .push_back({any_rank(forest, random), any_rank(forest, random)});
       }},
      {"close a cycle",
       [](Forest& forest, Random& random) {
         Tree& tree = any_tree(forest, random);
         auto& edges = any_edges(tree, random);
         if (!edges.empty()) edges.push_back({tree.root, pick(edges, random).child});
       }},
      {"double a contribution",
       [](Forest& forest, Random& random) {
         auto& ranks = any_tree(forest, random).contributors;
         ranks.push_back(pick(ranks, random));
         sort(ranks);
       }},
      {"exchange a contributor",
       [](Forest& forest, Random& random) {
         auto& ranks = any_tree(forest, random).contributors;
         pick(ranks, random) = any_rank(forest, random);
         sort(ranks);
       }},
      {"drop a contributor",
       [](Forest& forest, Random& random) {
         auto& ranks = any_tree(forest, random).contributors;
         ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(random.below(ranks.size())));
       }},
      {"drop a receiver",
       [](Forest& forest, Random& random) {
         auto& ranks = any_tree(forest, random).receivers;
         ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(random.below(ranks.size())));
       }},
      {"exchange a receiver",
       [](Forest& forest, Random& random) {
         auto& ranks = any_tree(forest, random).receivers;
         pick(ranks, random) = any_rank(forest, random);
         sort(ranks);
       }},
      {"move the root",
       [](Forest& forest, Random& random) { any_tree(forest, random).root = any_rank(forest, random); }},
      {"shift a slice",
       [](Forest& forest, Random& random) {
         any_tree(forest, random).slice.offset += random.below(2) == 0 ? 1 : -1;
       }},
      {"stretch a slice",
       [](Forest& forest, Random& random) {
         any_tree(forest, random).slice.count += random.below(2) == 0 ? 1 : -1;
       }},
      {"drop a tree",
       [](Forest& forest, Random& random) {
         forest.trees.erase(forest.trees.begin() +
                            static_cast<std::ptrdiff_t>(random.below(forest.trees.size())));
       }},
      {"double a tree",
       [](Forest& forest, Random& random) { forest.trees.push_back(any_tree(forest, random)); }},
      {"exchange two slices",
       [](Forest& forest, Random& random) {
         std::swap(any_tree(forest, random).slice, any_tree(forest, random).slice);
       }},
  };
  return table;
}

TEST(Mutations, TheOracleAgreesThatEveryPlannedForestIsRight) {
  for (const Forest& forest : small_forests()) {
    EXPECT_TRUE(computes_its_collective(forest)) << describe(forest.planner, forest.request);
    EXPECT_TRUE(accepted(forest)) << describe(forest.planner, forest.request);
  }
}

TEST(Mutations, NoForestThatComputesSomethingElseIsAccepted) {
  const auto forests = small_forests();
  const std::size_t step = kSanitized ? 4 : 1;
  for (std::size_t kind = 0; kind < mutations().size(); ++kind) {
    const NamedMutation& mutation = mutations()[kind];
    int broken = 0;
    for (std::size_t i = 0; i < forests.size(); i += step) {
      for (std::uint64_t seed = 0; seed < 2; ++seed) {
        Random random(seed, kind * forests.size() + i);
        Forest mutant = forests[i];
        mutation.apply(mutant, random);
        if (mutant == forests[i] || computes_its_collective(mutant)) continue;
        ++broken;
        EXPECT_FALSE(accepted(mutant))
            << mutation.name << ", seed " << seed << ": " << describe(mutant.planner, mutant.request) << "\n"
            << to_yaml(mutant);
      }
    }
    EXPECT_GT(broken, fewer(50)) << mutation.name << " broke too few forests to say anything";
  }
}

}  // namespace
}  // namespace talweg::forest
