#include "formats/msccl_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "talweg/error.h"

namespace talweg::formats {
namespace {

// Where an element of a part lies when the part has `chunks` of them.
std::int64_t rounded(std::int64_t element, std::int64_t part, std::int64_t chunks) {
  return std::llround(static_cast<double>(element) * static_cast<double>(chunks) / static_cast<double>(part));
}

// By how much the slice that gains most grows beyond its share; infinite when one vanishes.
double excess(const std::set<std::int64_t>& cuts, std::int64_t part, std::int64_t chunks) {
  double most = 0;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    const auto length = rounded(*std::next(cut), part, chunks) - rounded(*cut, part, chunks);
    if (length == 0) return std::numeric_limits<double>::infinity();
    const double share = static_cast<double>(*std::next(cut) - *cut) / static_cast<double>(part);
    most = std::max(most, static_cast<double>(length) / static_cast<double>(chunks) / share - 1);
  }
  return most;
}

}  // namespace

void refuse_for_msccl(const std::string& text) {
  throw Error(ErrorCode::unsupported, "MSCCL: " + text);
}

Forest in_chunks(const Forest& forest, int most_chunks) {
  constexpr double kGoodEnough = 0.01;
  const auto& counts = forest.request.counts;
  const std::int64_t part = counts[0];
  const auto parts = static_cast<std::int64_t>(counts.size());
  if (std::ranges::any_of(counts, [&](std::int64_t count) { return count != part; }))
    refuse_for_msccl("counts differ by rank: expected the same for all");
  if (part == 0) refuse_for_msccl("the vector is empty: expected at least one element");

  // Where slices begin and end in their part; the same cuts for all parts.
  std::set<std::int64_t> cuts{0, part};
  for (const forest::Tree& tree : forest.trees) {
    if (tree.slice.count == 0) continue;
    cuts.insert(tree.slice.offset % part);
    cuts.insert((tree.slice.offset + tree.slice.count - 1) % part + 1);
  }
  const std::int64_t most = std::max<std::int64_t>(1, most_chunks / parts);
  std::int64_t chunks = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t candidate = 1; candidate <= most && least > kGoodEnough; ++candidate) {
    const double now = excess(cuts, part, candidate);
    if (now >= least) continue;
    least = now;
    chunks = candidate;
  }
  if (chunks == 0)
    refuse_for_msccl(fmt::format(
        "slices are too unequal for {} chunks: expected at most {} of them in each part", most, most));

  Forest result = forest;
  result.request.counts.assign(counts.size(), chunks);
  result.trees.clear();
  for (forest::Tree tree : forest.trees) {
    if (tree.slice.count == 0) continue;
    const std::int64_t first = tree.slice.offset / part, begin = tree.slice.offset % part;
    const std::int64_t end = begin + tree.slice.count;
    if (end > part) refuse_for_msccl("a slice reaches from one part into the next");
    tree.slice.offset = first * chunks + rounded(begin, part, chunks);
    tree.slice.count = first * chunks + rounded(end, part, chunks) - tree.slice.offset;
    tree.chunk = tree.slice.count;
    result.trees.push_back(std::move(tree));
  }
  return result;
}

}  // namespace talweg::formats
