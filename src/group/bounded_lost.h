// What of a call of bounded sums was lost: by layer, and kept in the residual.
#pragma once

#include <cstddef>
#include <span>

#include "protocol/aggregation/tensor.h"
#include "protocol/bounded/exchange.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

// Adds to `report` what rank `r` has never had of what this rank has sent it: of the elements of the call's
// vector from `first` on. lost_of_layer has an element for each layer of the call, and one where it has none.
void note_lost(const protocol::Exchange& exchange, int r, const BoundedCall& call, std::size_t first,
               LossReport& report);
// The same of what is missing in a sum that switches have made: ranges of the vector, in ascending order.
void note_lost(std::span<const protocol::SumLosses::Range> own, const BoundedCall& call, LossReport& report);

// The residual, where there is one, has everything that was sent: what has arrived goes. `offsets`: where
// each rank's shard begins, in elements; `self` keeps nothing of its own.
void keep_lost(const protocol::Exchange& exchange, int self, std::span<const std::size_t> offsets,
               const BoundedCall& call);
void keep_lost(std::span<const protocol::SumLosses::Range> own, const BoundedCall& call);

}  // namespace talweg::group
