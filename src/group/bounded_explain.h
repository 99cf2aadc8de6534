// What BoundedSums::explain says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "group/bounded_switch.h"
#include "group/bounded_ways.h"
#include "group/group_impl.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

// What has been found out of the network before the first call. Nobody changes it later.
struct BoundedCarrier {
  PassingWays ways;
  std::uint16_t stride = 0;  // bytes of a packet; 0: the group's connections serve
  live::UdpPaths paths;      // by which this rank sends
  std::string no_switch;     // why no call goes by the group's; empty: they may, or it has none
};

// `group`: with the ranks of the sums. `by_switch`: null: no call goes by a switch. Any thread. Throws
// Error{invalid_argument} as an all_reduce would.
std::string explain_bounded(const GroupImpl& group, const BoundedLossOptions& options,
                            const BoundedCarrier& carrier, const BoundedSwitch* by_switch, std::size_t count,
                            DataType type);

}  // namespace talweg::group
