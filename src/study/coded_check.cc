#include "study/coded_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "talweg/types.h"

namespace talweg::study {

namespace {

float float_at(const std::byte* values, std::size_t i) {
  float value = 0;
  std::memcpy(&value, values + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

CodedCheck::CodedCheck(const PerfCase& c, wire::AggregationFormat format, std::size_t block,
                       const std::byte* residual, const std::vector<std::byte>& input)
    : count_(c.count), block_(block), format_(format), residual_(residual), before_(c.count) {
  for (std::size_t i = 0; i < count_; ++i) {
    const float both = float_at(input.data(), i) + float_at(residual, i);
    before_[i] = static_cast<double>(both);
  }
}

std::uint64_t CodedCheck::count_wrong(Group& group, const std::byte* sum, int racks) const {
  std::vector<double> own(count_), all(count_), magnitudes(count_);
  for (std::size_t i = 0; i < count_; ++i) own[i] = before_[i] - static_cast<double>(float_at(residual_, i));
  group.all_reduce(own.data(), all.data(), count_, DataType::f64, ReduceOp::sum);
  for (double& x : own) x = std::abs(x);
  group.all_reduce(own.data(), magnitudes.data(), count_, DataType::f64, ReduceOp::sum);
  const std::size_t of_scale = wire::coded_elements(format_);
  const double top = format_ == wire::AggregationFormat::block8 ? 127 : 7;
  constexpr double kAdditions = 1e-5;  // rounded in float, as scales are
  std::uint64_t wrong = 0;
  for (std::size_t first = 0; first < count_;) {
    const std::size_t in_block = first % block_;
    const std::size_t end =
        std::min({first + of_scale - in_block % of_scale, first - in_block + block_, count_});
    double most = 0, of_magnitudes = 0;
    for (std::size_t i = first; i < end; ++i) {
      most = std::max(most, std::abs(all[i]));
      of_magnitudes = std::max(of_magnitudes, magnitudes[i]);
    }
    // No rack's sum is larger than that of all magnitudes.
    const double of_racks = racks > 1 ? racks * of_magnitudes / top : 0;
    const double bound = of_racks + (most + of_racks) / top + kAdditions * of_magnitudes;
    for (std::size_t i = first; i < end; ++i)
      wrong += std::abs(static_cast<double>(float_at(sum, i)) - all[i]) <= bound ? 0 : 1;  // also of NaN
    first = end;
  }
  std::uint64_t least = 14'695'981'039'346'656'037U;  // FNV-1a
  for (std::size_t i = 0; i < count_ * sizeof(float); ++i)
    least = (least ^ std::to_integer<std::uint64_t>(sum[i])) * 1'099'511'628'211U;
  std::uint64_t most = least;
  group.all_reduce(&least, &least, 1, DataType::u64, ReduceOp::min);
  group.all_reduce(&most, &most, 1, DataType::u64, ReduceOp::max);
  return least == most ? wrong : count_;
}

}  // namespace talweg::study
