// What of a call of bounded sums was lost, by layer.
#pragma once

#include <cstddef>

#include "protocol/bounded/exchange.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

// Adds to `report` what rank `r` has never had of what this rank has sent it: of the elements of the call's
// vector from `first` on. lost_of_layer has an element for each layer of the call, and one where it has none.
void note_lost(const protocol::Exchange& exchange, int r, const BoundedCall& call, std::size_t first,
               LossReport& report);

}  // namespace talweg::group
