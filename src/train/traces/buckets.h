// How DistributedDataParallel puts gradients into buckets, and back from buckets that were seen to its settings.
//
// Its rule: parameters in the order in which their gradients are ready go into a bucket, which closes when it has
// reached its cap; no gradient is split. The first bucket has a cap of its own, 1 MiB, so that the first transfer
// begins early (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace talweg::train {

inline constexpr Bytes kFirstBucketCap{std::int64_t{1} << 20};
inline constexpr Bytes kBucketCap{std::int64_t{25} << 20};  // bucket_cap_mb, as long as nobody sets it

// How many parameters each bucket holds.
std::vector<std::size_t> ddp_buckets(std::span<const Bytes> sizes, Bytes first_cap, Bytes cap);

// How many of the parameters, taken in order, make up each of the buckets; empty, if none do exactly.
std::optional<std::vector<std::size_t>> match_buckets(std::span<const std::int64_t> elements,
                                                      std::span<const std::int64_t> buckets);

// The caps with which the rule makes these buckets: 25 MiB where that is one of them, else the least whole MiB, else
// the least; nothing, if no cap does. `counts` as ddp_buckets() gives them.
struct BucketCaps {
  Bytes first, others;
  bool operator==(const BucketCaps&) const = default;
};
std::optional<BucketCaps> caps_of(std::span<const Bytes> sizes, std::span<const std::size_t> counts);

}  // namespace talweg::train
