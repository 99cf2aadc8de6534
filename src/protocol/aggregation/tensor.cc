#include "protocol/aggregation/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/blocks.h"
#include "kernel/reduce.h"

namespace talweg::protocol {

namespace {

std::uint64_t blocks_of_lane(const Sum& sum) {
  const std::uint64_t all = sum.rows != nullptr
                                ? sum.rows->limit * units_of(sum.rows->width, sum.format, sum.block).per_row
                                : (sum.count + sum.block - 1) / sum.block;
  return all > sum.lane ? (all - sum.lane + sum.lanes - 1) / sum.lanes : 0;
}

// Of floats: what is finite in `from`; elsewhere what was there, or zero, should that not be finite, either.
void take_finite(std::byte* to, const std::byte* from, std::size_t count) {
  if (kernel::max_magnitude(from, count) < kernel::kNotFiniteBits) {
    if (to != from) std::memcpy(to, from, count * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count * sizeof(float); i += sizeof(float)) {
    float before = 0, now = 0;
    std::memcpy(&before, to + i, sizeof before);
    std::memcpy(&now, from + i, sizeof now);
    if (!std::isfinite(now)) now = std::isfinite(before) ? before : 0;
    std::memcpy(to + i, &now, sizeof now);
  }
}

}  // namespace

void add_losses(SumLosses& to, const SumLosses& part, std::size_t first) {
  for (const SumLosses::Range& range : part.own) to.own.push_back({first + range.first, range.count});
  to.of_worker.resize(std::max(to.of_worker.size(), part.of_worker.size()));
  for (std::size_t w = 0; w < part.of_worker.size(); ++w) to.of_worker[w] += part.of_worker[w];
  to.allowance += part.allowance;
  to.again += part.again;
}

std::uint64_t blocks_that_may_be_missing(const Sum& sum) {
  const std::uint64_t blocks = blocks_of_lane(sum);
  if (sum.tolerance.ppm == 0 || blocks == 0) return 0;
  const std::uint64_t all = (sum.count + sum.block - 1) / sum.block;
  const std::uint64_t short_by = (all - 1) % sum.lanes == sum.lane ? all * sum.block - sum.count : 0;
  return (blocks * sum.block - short_by) * sum.tolerance.ppm / 1'000'000 / sum.block;
}

std::string wrong_tolerance(const Sum& sum) {
  const Tolerance& t = sum.tolerance;
  if (t.ppm > Tolerance::kMostPpm)
    return fmt::format("{} millionths that may be missing: expected at most {}", t.ppm, Tolerance::kMostPpm);
  if (t.ppm == 0 && (t.residual == nullptr || wire::is_coded(sum.format))) return {};
  const bool by_keys = sum.format == wire::AggregationFormat::pairs;
  if (sum.sparse || by_keys || sum.format == wire::AggregationFormat::scaled)
    return fmt::format("nothing may be missing of {}: all workers agree on what comes next",
                       by_keys      ? "sums by key"
                       : sum.sparse ? "sparse sums"
                                    : "sums of a common scale");
  return t.rescale && sum.format == wire::AggregationFormat::i32 ? "integers are not rescaled" : "";
}

std::string wrong_rows(const Sum& sum) {
  if (sum.rows == nullptr) return {};
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 62;
  const Rows& rows = *sum.rows;
  if (rows.limit > Rows::kMostKeys || rows.width == 0 ||
      (rows.limit > 0 && rows.width > kMostElements / rows.limit))
    return fmt::format("{} rows of {} elements: expected up to {} of 1 and more, and 2^62 elements in all",
                       rows.limit, rows.width, Rows::kMostKeys);
  if (sum.count != rows.elements() || rows.sums == nullptr)
    return fmt::format("{} elements, of which {} rows of {} are no part", sum.count, rows.limit, rows.width);
  if (wire::is_coded(sum.format) || sum.tolerance.ppm > 0 || sum.tolerance.residual != nullptr)
    return "rows travel as they are, and all of them";
  return {};
}

void SummedTensor::reset(const Sum& sum, std::uint32_t workers, std::uint64_t seed, std::uint64_t columns) {
  sum_ = sum;
  workers_ = workers;
  blocks_ = blocks_of_lane(sum);
  seed_ = seed;
  columns_ = columns;
  if (sum.rows != nullptr) {
    rows_.reset(*sum.rows, units_of(sum.rows->width, sum.format, sum.block), {1, sum.lanes, columns},
                sum.lane);
    return;
  }
  if (wire::is_coded(sum.format) && sum.tolerance.residual != nullptr)
    scratch_.resize(std::max(sum.block * sizeof(float), wire::data_bytes(sum.format, sum.block)));
  if (!sum.sparse) return;
  holds_.assign(kernel::bitmap_words(blocks_), 0);
  const DataType type = wire::type_in_memory(sum.format);
  if (sum.lanes == 1 && sum.tolerance.residual == nullptr) {
    kernel::nonzero_blocks(type, sum.in, sum.count, sum.block, holds_.data());
    return;
  }
  for (std::uint64_t b = 0; b < blocks_; ++b)
    if (holds(b)) holds_[b / 64] |= std::uint64_t{1} << (b % 64);
}

bool SummedTensor::holds(std::uint64_t block) const {
  const DataType type = wire::type_in_memory(sum_.format);
  const std::byte* const residual = sum_.tolerance.residual;
  return !kernel::is_zero(type, sum_.in + offset(block), count_of(block)) ||
         (residual != nullptr && !kernel::is_zero(type, residual + offset(block), count_of(block)));
}

// With a residual to nearest, which is in it again what this takes.
kernel::Rounding SummedTensor::rounding(std::uint64_t block) const {
  return sum_.tolerance.residual != nullptr ? kernel::Rounding{} : at_random(seed_, first_element(block));
}

std::optional<std::uint64_t> SummedTensor::place_from(std::uint64_t block) const {
  const std::uint64_t column = block % columns_;
  const std::span<const std::uint64_t> own = rows_.places(column);
  const std::size_t before = rows_.before(column, unit_of(block));
  if (before == own.size()) return std::nullopt;
  return own[before];
}

// Of one that this worker has.
const std::byte* SummedTensor::in(std::uint64_t block) const {
  if (sum_.rows == nullptr) return sum_.in + offset(block);
  return sum_.rows->values + rows_.element_at(*place_from(block)) * wire::bytes_in_memory(sum_.format);
}

std::uint16_t SummedTensor::count_of(std::uint64_t block) const {
  if (sum_.rows != nullptr) return static_cast<std::uint16_t>(rows_.length_of(unit_of(block)));
  return static_cast<std::uint16_t>(std::min<std::size_t>(sum_.block, sum_.count - first_element(block)));
}

bool SummedTensor::owns(std::uint64_t block) const {
  if (sum_.rows != nullptr) {
    const auto place = place_from(block);
    return place && rows_.unit_at(*place) == unit_of(block);
  }
  return !sum_.sparse || (holds_[block / 64] >> (block % 64) & 1) != 0;
}

std::uint64_t SummedTensor::owned() const {
  if (!sum_.sparse) return blocks_;
  std::uint64_t count = 0;
  for (const std::uint64_t word : holds_) count += static_cast<std::uint64_t>(std::popcount(word));
  return count;
}

std::uint64_t SummedTensor::owned_from(std::uint64_t block, std::uint64_t step) const {
  if (sum_.rows != nullptr) {
    const auto place = place_from(block);
    return place ? rows_.unit_at(*place) / sum_.lanes : wire::kNeverNext;
  }
  while (block < blocks_ && !owns(block)) block += step;
  return block < blocks_ ? block : wire::kNeverNext;
}

std::int16_t SummedTensor::exponent(std::uint64_t block) const {
  if (!is_scaled() || block == wire::kNeverNext) return wire::kZeroExponent;
  return exponent_of(kernel::max_magnitude(in(block), count_of(block)));
}

bool SummedTensor::travels(std::int16_t exponent) const {
  return !is_scaled() || scale_of(exponent, workers_).kind == BlockScale::Kind::scaled;
}

void SummedTensor::write(std::uint64_t block, std::int16_t exponent, std::byte* data) {
  const std::byte* in = this->in(block);
  const std::size_t count = count_of(block);
  if (is_scaled()) {
    const BlockScale scale = scale_of(exponent, workers_);
    kernel::quantise(data, in, count, scale.to_integer, scale.limit);
  } else if (wire::is_coded(sum_.format)) {
    if (const std::byte* const residual = sum_.tolerance.residual; residual != nullptr) {
      kernel::reduce_function(DataType::f32, ReduceOp::sum)(scratch_.data(), in, residual + offset(block),
                                                            count);
      in = scratch_.data();
    }
    kernel::encode(gradient_format(sum_.format), in, count, data, rounding(block));
  } else if (sum_.tolerance.residual != nullptr) {
    const DataType type = wire::type_in_memory(sum_.format);
    kernel::reduce_function(type, ReduceOp::sum)(data, in, sum_.tolerance.residual + offset(block), count);
  } else {
    std::memcpy(data, in, count * wire::element_bytes(sum_.format));
  }
}

void SummedTensor::remember(std::uint64_t block, bool missing) {
  if (sum_.tolerance.residual == nullptr) return;
  std::byte* const residual = sum_.tolerance.residual + offset(block);
  const std::size_t count = count_of(block);
  const std::byte* const in = sum_.in + offset(block);
  if (wire::is_coded(sum_.format)) {
    if (missing) {
      kernel::reduce_function(DataType::f32, ReduceOp::sum)(scratch_.data(), in, residual, count);
      take_finite(residual, scratch_.data(), count);
    } else {  // once more as it was sent, before what it was made of is gone
      kernel::encode_with_feedback(gradient_format(sum_.format), in, residual, count, scratch_.data(),
                                   rounding(block));
      take_finite(residual, residual, count);
    }
  } else if (missing) {
    kernel::reduce_function(wire::type_in_memory(sum_.format), ReduceOp::sum)(residual, residual, in, count);
  } else {
    std::memset(residual, 0, count * wire::element_bytes(sum_.format));
  }
}

void SummedTensor::rescale(std::uint64_t block, std::size_t absent) {
  constexpr std::size_t kPiece = 256;
  const float factor = static_cast<float>(workers_) / static_cast<float>(workers_ - absent);
  const DataType type = wire::type_in_memory(sum_.format);
  const std::size_t bytes = wire::bytes_in_memory(sum_.format);
  float piece[kPiece];
  for (std::size_t first = 0, count = count_of(block); first < count; first += kPiece) {
    std::byte* const at = sum_.out + offset(block) + first * bytes;
    const std::size_t n = std::min(kPiece, count - first);
    if (type == DataType::f32)
      std::memcpy(piece, at, n * bytes);
    else
      kernel::widen(type, piece, at, n);
    for (std::size_t i = 0; i < n; ++i) piece[i] *= factor;
    if (type == DataType::f32)
      std::memcpy(at, piece, n * bytes);
    else
      kernel::narrow(type, at, piece, n);
  }
}

void SummedTensor::accept(std::uint64_t block, std::int16_t exponent, std::span<const std::byte> data) {
  // Whose exponent is known somebody has.
  if (sum_.rows != nullptr && data.empty() && !is_scaled()) return;
  std::byte* const out =
      sum_.rows != nullptr ? sum_.rows->sums->add(unit_of(block)) : sum_.out + offset(block);
  const std::size_t count = count_of(block);
  const std::size_t bytes = count * wire::bytes_in_memory(sum_.format);
  if (sum_.kept != nullptr) sum_.kept->keep(offset(block), bytes);
  const BlockScale scale = scale_of(is_scaled() ? exponent : wire::kZeroExponent, workers_);
  if (scale.kind == BlockScale::Kind::not_finite) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * sizeof kNan, &kNan, sizeof kNan);
  } else if (data.empty()) {
    std::memset(out, 0, bytes);
  } else if (is_scaled()) {
    kernel::dequantise(out, data.data(), count, scale.to_float);
  } else if (wire::is_coded(sum_.format)) {
    kernel::decode(gradient_format(sum_.format), data.data(), count, out);
  } else {
    std::memcpy(out, data.data(), bytes);
  }
}

}  // namespace talweg::protocol
