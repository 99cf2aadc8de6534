#include "train/traces/buckets.h"

#include <algorithm>
#include <limits>

namespace talweg::train {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

// Caps that close a bucket exactly where it was closed: above what it held before its last gradient.
struct CapRange {
  std::int64_t above = 0, most = std::numeric_limits<std::int64_t>::max();
  void narrow(std::int64_t before_last, std::int64_t total) {
    above = std::max(above, before_last);
    most = std::min(most, total);
  }
  std::optional<Bytes> pick(Bytes usual) const {
    if (above >= most) return std::nullopt;
    if (usual.value > above && usual.value <= most) return usual;
    const std::int64_t whole = (above / kMebibyte + 1) * kMebibyte;
    return Bytes{whole <= most ? whole : above + 1};
  }
};

}  // namespace

std::optional<Groups> match_buckets(std::span<const std::int64_t> elements,
                                    std::span<const std::int64_t> transfers) {
  Groups groups;
  std::size_t at = 0;
  for (const std::int64_t wanted : transfers) {
    std::int64_t sum = 0;
    std::size_t end = at;
    while (end < elements.size() && elements[end] >= 0 && elements[end] <= wanted - sum && sum < wanted)
      sum += elements[end++];
    if (sum == wanted) at = end;
    groups.push_back(at);
  }
  if (at != elements.size()) return std::nullopt;
  return groups;
}

std::optional<BucketCaps> caps_of(std::span<const Bytes> sizes, const Groups& groups) {
  CapRange first, others;
  std::size_t at = 0;
  for (std::size_t b = 0; b < groups.size(); ++b) {
    if (groups[b] <= at) return std::nullopt;
    std::int64_t total = 0;
    for (; at < groups[b]; ++at) total += sizes[at].value;
    CapRange& range = b == 0 ? first : others;
    // The last bucket ends with the parameters, wherever its cap is.
    range.narrow(total - sizes[at - 1].value, b + 1 < groups.size() ? total : range.most);
  }
  const auto a = first.pick(kFirstBucketCap), b = others.pick(kBucketCap);
  if (!a || !b) return std::nullopt;
  return BucketCaps{*a, *b};
}

}  // namespace talweg::train
