// How datagrams pass between the ranks of bounded sums, as all of them agree before the first call.
#pragma once

#include <cstddef>
#include <memory>

#include "group/bell.h"
#include "live/bounded/bounded_ways.h"
#include "talweg/group.h"

namespace talweg::group {

// The largest IP packet that passes on all ways; 0: on one of them none does. Collective: every rank has made
// its `ways`, and gets the same. Warns where it is none, and, on rank 0, where it is smaller than kernels
// know of. `bell`: for this call alone. Throws Error as a collective does.
std::size_t try_ways(Group& group, live::BoundedWays& ways, const std::shared_ptr<Bell>& bell);

}  // namespace talweg::group
