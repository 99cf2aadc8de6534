#include "steer/gradient_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "base/random.h"
#include "kernel/selection.h"

namespace talweg::steer {

GradientRows::GradientRows(std::span<const std::size_t> counts, std::size_t width) {
  constexpr std::size_t kMostElements = (std::size_t{1} << 31) - 1;
  for (std::size_t place = 0; place < counts.size(); ++place) {
    const std::size_t count = counts[place];
    if (count == 0) continue;
    const std::size_t own_width = std::min(std::max<std::size_t>(width, 1), count);
    parameters_.push_back({count_, count, own_width, (count + own_width - 1) / own_width, place});
    count_ += count;
  }
  if (count_ > kMostElements)
    throw_error(ErrorCode::unsupported,
                "a bucket of {} gradients is too large to be sent by rows: {} at most", count_,
                kMostElements);
}

std::size_t GradientRows::part_of(const Parameter& parameter, double ratio) {
  const double part = std::ceil(ratio * static_cast<double>(parameter.rows));
  return std::clamp<std::size_t>(static_cast<std::size_t>(part), 1, parameter.rows);
}

GradientRows::Chosen GradientRows::top(const float* gradients, double ratio) const {
  Chosen chosen;
  std::vector<float> norms;
  for (const Parameter& p : parameters_) {
    const float* values = gradients + p.begin;
    if (p.width != 1) {
      norms.resize(p.rows);
      kernel::block_norms(values, p.count, p.width, norms.data());
      values = norms.data();
    }
    const std::size_t first = chosen.size();
    chosen.resize(first + part_of(p, ratio));
    kernel::top_k(values, p.rows, chosen.size() - first, chosen.data() + first);
    for (std::size_t i = first; i < chosen.size(); ++i)
      chosen[i] = static_cast<std::uint32_t>(p.begin + chosen[i] * p.width);
  }
  return chosen;
}

GradientRows::Chosen GradientRows::at_least(const float* gradients, float least) const {
  Chosen chosen(kernel::at_least(gradients, count_, least, nullptr));
  kernel::at_least(gradients, count_, least, chosen.data());
  // Elements become the rows that they are in.
  auto parameter = parameters_.begin();
  for (std::uint32_t& element : chosen) {
    while (element >= parameter->begin + parameter->count) ++parameter;
    element -= static_cast<std::uint32_t>((element - parameter->begin) % parameter->width);
  }
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

GradientRows::Chosen GradientRows::random(double ratio, std::uint64_t seed,
                                          std::span<const std::uint64_t> numbers) const {
  Chosen chosen;
  std::vector<std::uint64_t> marks;
  for (const Parameter& p : parameters_) {
    marks.resize(kernel::words_of_marks(p.rows));
    const std::size_t first = chosen.size();
    chosen.resize(first + part_of(p, ratio));
    kernel::random_k(p.rows, chosen.size() - first, Random(seed, numbers[p.place]).next(), marks.data(),
                     chosen.data() + first);
    for (std::size_t j = first; j < chosen.size(); ++j)
      chosen[j] = static_cast<std::uint32_t>(p.begin + chosen[j] * p.width);
  }
  return chosen;
}

template <class Visit>
bool GradientRows::for_each_row(std::span<const std::uint32_t> chosen, Visit visit) const {
  auto parameter = parameters_.begin();
  std::size_t next = 0;  // no row begins before it
  for (const std::uint32_t element : chosen) {
    if (element < next || element >= count_) return false;
    while (element >= parameter->begin + parameter->count) ++parameter;
    if ((element - parameter->begin) % parameter->width != 0) return false;
    next = std::min(element + parameter->width, parameter->begin + parameter->count);
    visit(std::size_t{element}, parameter->width, next - element);
  }
  return true;
}

std::size_t GradientRows::packed_words(std::span<const std::uint32_t> chosen) const {
  std::size_t words = 1 + chosen.size();
  for_each_row(chosen, [&](std::size_t, std::size_t width, std::size_t) { words += width; });
  return words;
}

void GradientRows::pack(const float* gradients, std::span<const std::uint32_t> chosen, float* residual,
                        std::uint32_t* payload) const {
  *payload++ = static_cast<std::uint32_t>(chosen.size());
  payload = std::copy(chosen.begin(), chosen.end(), payload);
  if (residual != nullptr) kernel::keep_finite(gradients, residual, count_);
  for_each_row(chosen, [&](std::size_t first, std::size_t width, std::size_t present) {
    std::memcpy(payload, gradients + first, present * sizeof(float));
    std::fill(payload + present, payload + width, 0u);
    payload += width;
    if (residual != nullptr) std::fill_n(residual + first, present, 0.0f);
  });
}

void GradientRows::add(std::span<const std::uint32_t> payload, float* sums) const {
  const auto refuse = [&] {
    throw_error(ErrorCode::mismatch,
                "the rows of a gradient that came from another rank are not rows of this bucket");
  };
  if (payload.empty() || payload.size() - 1 < payload.front()) refuse();
  const auto chosen = payload.subspan(1, payload.front());
  const auto values = payload.subspan(1 + chosen.size());
  std::size_t words = 0;
  const auto count_words = [&](std::size_t, std::size_t width, std::size_t) { words += width; };
  if (!for_each_row(chosen, count_words) || words != values.size()) refuse();
  const std::uint32_t* from = values.data();
  for_each_row(chosen, [&](std::size_t first, std::size_t width, std::size_t present) {
    for (std::size_t i = 0; i < present; ++i) sums[first + i] += std::bit_cast<float>(from[i]);
    from += width;
  });
}

}  // namespace talweg::steer
