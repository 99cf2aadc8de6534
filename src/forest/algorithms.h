// The algorithms behind the planners, one file each (ring.cc, chain.cc, ...), and the table of them: a new
// one is a declaration and a row here. Each makes the trees of a valid request that it serves and leaves the
// chunk sizes to the cost model. For planner.cc, choice.cc and the algorithms themselves.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::forest {

Forest plan_ring(const Request& request, const CostModel& model);
Forest plan_chain(const Request& request, const CostModel& model);
Forest plan_double_binary_tree(const Request& request, const CostModel& model);
Forest plan_halving_doubling(const Request& request, const CostModel& model);
Forest plan_binomial(const Request& request, const CostModel& model);
Forest plan_star(const Request& request, const CostModel& model);
Forest plan_sharded_star(const Request& request, const CostModel& model);
// What that takes, in steps of about a nanosecond.
std::int64_t sharded_star_steps(const CostModel& model);
Forest plan_direct(const Request& request, const CostModel& model);
Forest plan_one_hop(const Request& request, const CostModel& model);
Forest plan_recursive_doubling(const Request& request, const CostModel& model);
Forest plan_packed(const Request& request, const CostModel& model);

struct Algorithm {
  const char* name;
  const char* description;
  std::uint32_t operations;  // a bit for each that it serves
  Forest (*plan)(const Request&, const CostModel&);
};

bool serves(const Algorithm& algorithm, const Request& request);
// Why it is not planned for a request of this size that it serves; empty where it is.
std::string why_not_meant(const Algorithm& algorithm, const Request& request);

constexpr std::uint32_t served(std::initializer_list<Collective> list) {
  std::uint32_t bits = 0;
  for (const Collective op : list) bits |= std::uint32_t{1} << static_cast<unsigned>(op);
  return bits;
}

namespace algorithms {
using enum Collective;

inline constexpr Algorithm kAll[] = {
    {"halving_doubling", "recursive halving and doubling: N binomial trees, a share of 1/N each",
     served({all_reduce, reduce_scatter, all_gather}), plan_halving_doubling},
    {"ring", "N paths around a ring, a share of 1/N each", served({all_reduce, reduce_scatter, all_gather}),
     plan_ring},
    {"chain", "one path through all ranks, pipelined", served({all_reduce, reduce, broadcast}), plan_chain},
    {"double_binary_tree", "two binary trees, half each; inner ranks of one are leaves of the other",
     served({all_reduce, reduce, broadcast}), plan_double_binary_tree},
    {"binomial", "one binomial tree", served({all_reduce, reduce, broadcast, barrier}), plan_binomial},
    {"star", "one parameter server", served({all_reduce, reduce, broadcast}), plan_star},
    {"sharded_star", "parameter servers on the best-connected ranks, shares by capacity",
     served({all_reduce}), plan_sharded_star},
    {"direct", "each slice straight from who has it to who wants it",
     served({reduce, broadcast, reduce_scatter, all_gather, all_to_all, gather, scatter, send_recv}),
     plan_direct},
    {"one_hop", "everyone sends all to everyone: for tiny messages", served({all_reduce, barrier}),
     plan_one_hop},
    {"recursive_doubling", "pairs at distance 1, 2, 4 .. exchange sums: for small messages",
     served({all_reduce, barrier}), plan_recursive_doubling},
    {"packed",
     "trees that together use what the links carry, within 1 % of the bound; shares by rate and depth",
     served({all_reduce, reduce, broadcast, reduce_scatter, all_gather}), plan_packed},
};
}  // namespace algorithms

}  // namespace talweg::forest
