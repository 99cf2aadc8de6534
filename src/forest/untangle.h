// Untangling: trees that cross a link more often than they need to are made to cross it less often, where no
// link pays for that.
//
//   untangle(market, trees);
//
// Where a tree enters a rack more than once, some p in the rack may send to a c outside, while some x outside
// sends to a b in the rack. With p -> b and x -> c in place of p -> c and x -> b the tree enters the rack
// once less: its uplink carries less, and fewer flows meet there. Every worker has as many neighbours as
// before, so hosts' own links carry what they did. Tours of travelling salesmen are improved like this
// (2-opt, Croes 1958). What holds for racks holds for pods, and for whatever else routes have in common.
//
// An exchange is made where the sum over all links and groups of use by capacity falls, no single one carries
// more, and the tree is no deeper than it was. Where links are alike both ways, edges of a tree have no
// direction: then two edges of one path, p -> c .. x -> b, become p -> x .. c -> b, with the way between
// turned round.
//
// Not repaired is a rack that nothing leads out of, and whose hosts hang on several hosts elsewhere: one of
// its own would have to send more. That is for the prices that trees are found by.
#pragma once

#include <vector>

#include "forest/tree_exchange.h"
#include "forest/tree_market.h"
#include "forest/work_limit.h"

namespace talweg::forest {

// Edges of the market run over routes, and no tree goes through aggregators. Rates stay; roots too, but where
// the market is symmetric. Work is spent from `limit`, if there is one.
void untangle(const TreeMarket& market, std::vector<PackedTree>& trees, WorkLimit* limit = nullptr);

}  // namespace talweg::forest
