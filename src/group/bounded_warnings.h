// What is told, once, of what makes bounded sums slower than they could be, or do less than was asked for: as
// a warning, with what to change.
#pragma once

#include <span>
#include <vector>

#include "group/bounded_terms.h"
#include "live/bounded/bounded_exchange.h"
#include "talweg/group.h"

namespace talweg::group {

// Of socket buffers that leave each sender less room than it is to have in the queue: by rank 0, one line for
// all ranks. `servers`: those that sum; none: all do.
void warn_of_credits(const Group& group, std::span<const Introduction> all, const std::vector<int>& servers);

// After a call: of paths that bring no answer, and of classes that the host refuses.
void warn_of_datagrams(const Group& group, live::BoundedExchange& exchange);

}  // namespace talweg::group
