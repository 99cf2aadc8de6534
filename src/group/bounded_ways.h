// How datagrams pass between the ranks of bounded sums, as all of them agree before the first call.
#pragma once

#include <cstddef>

#include "live/bounded/bounded_ways.h"
#include "talweg/group.h"

namespace talweg::group {

struct AgreedWays {
  // The largest IP packet that passes on all ways; 0: on one of them none does. And the worst of the ways.
  std::size_t packet = 0;
  int from = 0, to = 0;
  std::size_t wanted = 0;  // what it would be, had everything passed that the ranks' kernels let leave
};

// Collective: every rank has made its `ways`, and gets the same result. Throws Error as a collective does.
AgreedWays try_ways(Group& group, live::BoundedWays& ways);

}  // namespace talweg::group
