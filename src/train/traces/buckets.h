// Back from the buckets that DistributedDataParallel was seen to fill to its settings.
//
// Its rule (merge_by_size() of merging.h): parameters in the order in which their gradients are ready go into
// a bucket, which closes when it has reached its cap; no gradient is split. Unless bucket_cap_mb is set, the
// first bucket has a cap of its own, 1 MiB, so that the first transfer begins early
// (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "train/merging.h"

namespace talweg::train {

inline constexpr Bytes kFirstBucketCap{std::int64_t{1} << 20};
inline constexpr Bytes kBucketCap{std::int64_t{25} << 20};  // bucket_cap_mb, as long as nobody sets it

// Which of the parameters, taken in order, make up each of the transfers. A transfer that the next parameters
// do not make up exactly, such as the mean of a loss, carried no gradients and has none. Nothing, if
// parameters are left over.
std::optional<Groups> match_buckets(std::span<const std::int64_t> elements,
                                    std::span<const std::int64_t> transfers);

// The caps with which the rule makes these buckets: 25 MiB where that is one of them, else the least whole
// MiB, else the least; nothing, if no cap does. No bucket is empty.
struct BucketCaps {
  Bytes first, others;
  bool operator==(const BucketCaps&) const = default;
};
std::optional<BucketCaps> caps_of(std::span<const Bytes> sizes, const Groups& groups);

}  // namespace talweg::train
