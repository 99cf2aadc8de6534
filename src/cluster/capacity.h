// The rates that links and capacity groups may have. Beyond these nothing is a network, and sums of times or
// ratios of rates lose their digits.
#pragma once

#include "base/units.h"

namespace talweg::cluster {

inline constexpr Bandwidth kLeastCapacity{1};
inline constexpr Bandwidth kMostCapacity{1e15};

}  // namespace talweg::cluster
