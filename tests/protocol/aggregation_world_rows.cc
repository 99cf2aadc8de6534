// Sparse tensors that a seed has summed by rows, after all other sums of its jobs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "protocol/aggregation_world_parts.h"

namespace talweg::protocol {

// Drawn apart: all that comes before is what it was without rows. Of very many workers their rounds would
// take more events than a seed may.
void AggregationWorld::plan_rows(Job& job) {
  Random random(seed_, 2000 + job.id);
  if (job.members.size() >= 10 || random.below(2) == 0) return;
  Tensor t;
  Sum& sum = t.sum;
  sum.format =
      static_cast<AggregationFormat>(random.below(static_cast<std::uint64_t>(AggregationFormat::pairs) + 1));
  const bool by_pairs = sum.format == AggregationFormat::pairs;
  if (by_pairs && job.terms.block < 2) sum.format = AggregationFormat::f32;
  sum.block = static_cast<std::uint16_t>(1 + random.below(job.terms.block));
  if (sum.format == AggregationFormat::pairs) sum.block = std::max<std::uint16_t>(sum.block, 2);
  sum.sparse = true;
  t.width = 1 + random.below(by_pairs ? 5 : 3U * sum.block);
  const std::size_t limit = random.below(12) == 0 ? 0 : 1 + random.below(150);
  sum.count = limit * t.width;
  const double density = std::pow(random.uniform(), 2);
  const std::uint64_t special = random.below(6);
  const std::size_t bytes = wire::bytes_in_memory(sum.format);
  for (std::size_t m = 0; m < job.members.size(); ++m) {
    std::vector<std::byte> in(sum.count * bytes);
    std::vector<std::int64_t> keys;
    const bool none = random.below(4) == 0;
    for (std::size_t row = 0; row < limit; ++row) {
      if (none || random.uniform() >= density) continue;
      keys.push_back(static_cast<std::int64_t>(row));
      const bool all_zero = random.below(10) == 0;
      const float scale = std::ldexp(1.0F, static_cast<int>(random.below(40)) - 20);
      for (std::size_t i = row * t.width; !all_zero && i < (row + 1) * t.width; ++i) {
        const auto small = static_cast<float>(static_cast<int>(random.below(7)) - 3);
        float real = static_cast<float>(random.uniform() * 2 - 1) * scale;
        if (sum.format == AggregationFormat::scaled && special == 1 && row % 2 == 0)
          real = std::ldexp(real, -120);
        float chosen = job.terms.ordered || sum.format == AggregationFormat::scaled ? real : small;
        if (special == 0 && random.below(60) == 0)
          chosen = random.below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
        if (sum.format == AggregationFormat::i32)
          put(in, i, static_cast<std::uint32_t>(random.next()));
        else if (sum.format == AggregationFormat::f16)
          put(in, i, kernel::f32_to_f16(small));
        else if (sum.format == AggregationFormat::bf16)
          put(in, i, kernel::f32_to_bf16(small));
        else
          put(in, i, chosen);
      }
    }
    t.inputs.push_back(std::move(in));
    t.keys.push_back(std::move(keys));
  }
  const auto has_none = [](const auto& keys) { return keys.empty(); };
  if (!std::ranges::all_of(t.keys, has_none)) {
    hit(AggregationMark::rows);
    if (std::ranges::any_of(t.keys, has_none)) hit(AggregationMark::no_rows);
    if (!by_pairs && t.width > sum.block) hit(AggregationMark::long_rows);
  }
  const std::size_t number = job.sums.size();
  job.sums.push_back(std::move(t));
  expect(job, number);
}

Sum AggregationWorld::begin_rows(const Tensor& t, Member& member) {
  Sum sum = t.sum;
  const std::vector<std::int64_t>& keys = t.keys[member.number];
  const std::size_t row_bytes = t.width * wire::bytes_in_memory(sum.format);
  member.in.clear();
  for (const std::int64_t key : keys) {
    const std::byte* const row = t.inputs[member.number].data() + static_cast<std::size_t>(key) * row_bytes;
    member.in.insert(member.in.end(), row, row + row_bytes);
  }
  std::size_t in_all = 0;
  for (const auto& one : t.keys) in_all += one.size();
  member.rows = {keys, member.in.data(), sum.count / t.width, t.width, in_all, &member.row_sums};
  member.row_sums.reset(sum.format, units_of(t.width, sum.format, sum.block), t.width);
  sum.in = nullptr;
  sum.out = nullptr;
  sum.rows = &member.rows;
  return sum;
}

// The result as a vector, as it is checked.
void AggregationWorld::end_rows(const Tensor& t, Member& member) {
  const auto summed = member.row_sums.finish();
  std::set<std::int64_t> any;
  for (const auto& keys : t.keys) any.insert(keys.begin(), keys.end());
  if (!summed || !std::ranges::equal(summed->keys, any))
    return problem(fmt::format("job {} worker {} has rows {}, expected {}", member.job->id, member.number,
                               summed ? fmt::format("{}", fmt::join(summed->keys, " ")) : "in pieces",
                               fmt::join(any, " ")));
  const std::size_t row_bytes = t.width * wire::bytes_in_memory(t.sum.format);
  std::fill_n(member.out.begin() + kGuard, t.sum.count / t.width * row_bytes, std::byte{0});
  for (std::size_t i = 0; i < summed->keys.size(); ++i)
    std::memcpy(member.out.data() + kGuard + static_cast<std::size_t>(summed->keys[i]) * row_bytes,
                summed->values.get() + i * row_bytes, row_bytes);
  member.in = t.inputs[member.number];
}

}  // namespace talweg::protocol
