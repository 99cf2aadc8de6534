// Signature: what one rank believes it is doing. All ranks of a collective must agree on it.
#pragma once

#include <cstdint>
#include <string>

#include "talweg/types.h"

namespace talweg::wire {

// Of one group: a root travels in 16 bits.
inline constexpr int kMaxRanks = 1 << 16;

struct Signature {
  Collective op = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;
  std::int32_t root = 0;
  std::int64_t count =
      0;  // elements: of the whole vector, or of the block between the two ranks (all_to_all ...)
  std::uint64_t layout = 0;  // digest of the per-rank counts where all ranks know all of them, else 0
  std::uint32_t plan = 0;    // digest of the plan that the sender follows; 0: not told
  bool operator==(const Signature&) const = default;
};

// Order-dependent digest of per-rank counts.
std::uint64_t layout_digest(const std::int64_t* counts, std::size_t n);

// "all_reduce(sum, f32, 100 elements)"; with root where the operation has one. The plan is nothing that
// callers have said: only a mismatch names it.
std::string to_string(const Signature& signature);

}  // namespace talweg::wire
