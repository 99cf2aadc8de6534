// What is asked of bounded sums' options and calls before anybody else hears of them.
#pragma once

#include "talweg/bounded_loss.h"

namespace talweg::group {

const char* name(LossPolicy policy);
// Both throw Error{invalid_argument}.
void check_options(const BoundedLossOptions& options);
void check_call(const BoundedCall& call, LossPolicy policy);

}  // namespace talweg::group
