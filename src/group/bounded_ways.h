// How datagrams pass between the ranks of bounded sums, as all of them agree before the first call.
#pragma once

#include <cstddef>
#include <memory>

#include "group/bell.h"
#include "live/bounded/bounded_ways.h"
#include "talweg/group.h"

namespace talweg::group {

struct PassingWays {
  std::size_t packet = 0;  // the largest IP packet that passes on all ways; 0: on one of them none does
  int from = 0, to = 0;    // ranks between which no larger one does
  std::size_t wanted = 0;  // the largest that kernels know of
};

// Collective: every rank has made its `ways`, and gets the same. Warns where nothing passes, and, on rank 0,
// where what does is smaller than kernels know of. `bell`: for this call alone. Throws Error as a collective
// does.
PassingWays try_ways(Group& group, live::BoundedWays& ways, const std::shared_ptr<Bell>& bell);

}  // namespace talweg::group
