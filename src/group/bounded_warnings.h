// What is told, once, of what makes bounded sums slower than they could be, or do less than was asked for: as
// a warning, with what to change.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "group/bounded_terms.h"
#include "group/group_impl.h"
#include "live/bounded/bounded_exchange.h"
#include "talweg/group.h"

namespace talweg::group {

// Of socket buffers that leave each sender less room than it is to have in the queue: by rank 0, one line for
// all ranks. `servers`: those that sum; none: all do.
void warn_of_credits(const Group& group, std::span<const Introduction> all, const std::vector<int>& servers);

// After a call: of paths that bring no answer, and of classes that the host refuses.
void warn_of_datagrams(const Group& group, live::BoundedExchange& exchange);

// Whether a call can end by its deadline at all. Looks at what is asked of it first, and then at each shorter
// deadline, until it has told of one.
class DeadlineWarning {
 public:
  // `round_trips_ns`: by rank, for those that connections measure; empty: these.
  explicit DeadlineWarning(std::vector<std::int64_t> round_trips_ns)
      : round_trips_ns_(std::move(round_trips_ns)) {}
  void look(const GroupImpl& group, std::int64_t deadline_ns);

 private:
  const std::vector<std::int64_t> round_trips_ns_;
  std::int64_t shortest_ns_ = std::numeric_limits<std::int64_t>::max();  // that has been looked at
};

}  // namespace talweg::group
