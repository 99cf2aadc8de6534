// How fast a collective can be on a network, whatever the forest, and why.
//
//   Bound bound = best_rate(cluster, Collective::all_reduce);
//   bound.rate.value();                   // bit/s: M bits take at least M / rate
//   to_words(bound, cluster);             // "host3's downlink"
//
// The reason is a price for every link and every capacity group. Load times price, summed over all of them,
// is at most capacity times price, summed; and it is at least the rate times what the cheapest trees cost at
// these prices. So
//
//   rate <= (sum of capacity times price) / (cost of the cheapest trees)
//
// and whoever doubts a bound can recompute it from the prices: rate_at_prices() does, in integers. A cut is
// the case of price 1 on the links that cross it, a partition that of price 1 on all links between its parts
// (Tutte 1961, Nash-Williams 1961). In all_to_all, gather and scatter the trees are paths, and the cheapest
// ones are the cheapest paths between all pairs that exchange a block.
//
// Rates are those of the whole vector, as time = bytes / rate. For all_gather, reduce_scatter, gather and
// scatter it is that of all ranks' parts together, for all_to_all one rank's row: a block for each rank, its
// own included. Parts and blocks are taken to be equal. What links with a burst let pass at once comes on top
// of what their rates carry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "forest/ratio.h"

namespace talweg::forest {

struct Certificate {
  enum class Kind {
    nothing,    // one worker: nothing moves
    cut,        // parts[0] and parts[1]: the links from the first to the second
    partition,  // all links between the parts
    prices      // these links and groups, each weighted by its price
  };
  Kind kind = Kind::nothing;
  std::vector<std::vector<int>> parts;  // nodes of the cluster
  std::vector<std::int64_t> link_prices, group_prices;
  bool operator==(const Certificate&) const = default;
};

struct Bound {
  Collective op = Collective::all_reduce;
  NodeId root = 0;  // broadcast, reduce, gather, scatter
  Ratio rate;       // bit/s; exact for capacities in whole bit/s
  // Whether some packing of trees was found, or is known, to reach the rate. Where switches sum or copy it
  // may be out of reach.
  bool attained = false;
  Certificate certificate;
  bool operator==(const Bound&) const = default;
};

// Of all collectives but send_recv and barrier.
bool has_bound(Collective op);

// The least bound that is known. Throws Error{unsupported} for operations without one,
// Error{invalid_argument} for clusters that are not valid.
Bound best_rate(const cluster::Cluster& cluster, Collective op, NodeId root = 0);

// What the prices prove, in bit/s; infinity, hence nothing, where some trees cost nothing. Prices are at
// least 0, and add up to less than 2^50 along any path.
Ratio rate_at_prices(const cluster::Cluster& cluster, Collective op, NodeId root,
                     const std::vector<std::int64_t>& link_prices,
                     const std::vector<std::int64_t>& group_prices);

// The reason in the names of the cluster: "h3's downlink", "the cut between {h0, h1} and the rest".
std::string to_words(const Bound& bound, const cluster::Cluster& cluster);

}  // namespace talweg::forest
