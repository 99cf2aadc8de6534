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

// The end of the values from `first` on that have a scale in common.
std::size_t CodedCheck::end_of_scale(std::size_t first) const {
  const std::size_t of_scale = wire::coded_elements(format_);
  const std::size_t in_block = first % block_;
  return std::min({first + of_scale - in_block % of_scale, first - in_block + block_, count_});
}

std::uint64_t CodedCheck::count_wrong(Group& group, const std::byte* sum, int racks) const {
  std::vector<double> own(count_), all(count_), magnitudes(count_), largest;
  for (std::size_t i = 0; i < count_; ++i) own[i] = before_[i] - static_cast<double>(float_at(residual_, i));
  group.all_reduce(own.data(), all.data(), count_, DataType::f64, ReduceOp::sum);
  for (std::size_t i = 0; i < count_; ++i) magnitudes[i] = std::abs(own[i]);
  for (std::size_t first = 0, end = 0; first < count_; first = end) {
    end = end_of_scale(first);
    largest.push_back(*std::max_element(magnitudes.data() + first, magnitudes.data() + end));
  }
  group.all_reduce(magnitudes.data(), magnitudes.data(), count_, DataType::f64, ReduceOp::sum);
  group.all_reduce(largest.data(), largest.data(), largest.size(), DataType::f64, ReduceOp::sum);
  const double top = format_ == wire::AggregationFormat::block8 ? 127 : 7;
  constexpr double kAdditions = 1e-5;  // rounded in float, as scales are
  // Hoeffding: a weighted sum of n errors of mean zero, each in an interval of one unit, is beyond c times
  // the root of the sum of its squared weights x units with a probability of 2 exp(-2 c^2): here 3e-14.
  constexpr double kDeviations = 4;
  std::uint64_t wrong = 0;
  double along = 0, variance = 0, additions = 0;
  for (std::size_t first = 0, end = 0, scale = 0; first < count_; first = end, ++scale) {
    end = end_of_scale(first);
    double most = 0, of_magnitudes = 0;
    for (std::size_t i = first; i < end; ++i) {
      most = std::max(most, std::abs(all[i]));
      of_magnitudes = std::max(of_magnitudes, magnitudes[i]);
    }
    // A rack's largest sum is none larger than its ranks' largest together.
    const double of_racks = racks > 1 ? largest[scale] / top : 0;
    const double unit = of_racks + (most + of_racks) / top;
    for (std::size_t i = first; i < end; ++i) {
      const double error = static_cast<double>(float_at(sum, i)) - all[i];
      wrong += std::abs(error) <= unit + kAdditions * of_magnitudes ? 0 : 1;  // also of NaN
      along += error * own[i];
      variance += unit * own[i] * unit * own[i];
      additions += kAdditions * of_magnitudes * std::abs(own[i]);
    }
  }
  if (std::abs(along) > kDeviations * std::sqrt(variance) + additions) wrong = count_;
  std::uint64_t least = 14'695'981'039'346'656'037U;  // FNV-1a
  for (std::size_t i = 0; i < count_ * sizeof(float); ++i)
    least = (least ^ std::to_integer<std::uint64_t>(sum[i])) * 1'099'511'628'211U;
  std::uint64_t most = least;
  group.all_reduce(&least, &least, 1, DataType::u64, ReduceOp::min);
  group.all_reduce(&most, &most, 1, DataType::u64, ReduceOp::max);
  return least == most ? wrong : count_;
}

}  // namespace talweg::study
