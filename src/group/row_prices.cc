#include "group/row_prices.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernel/merge.h"
#include "live/system.h"
#include "protocol/streaming/sum_form.h"

namespace talweg::group {

namespace {

constexpr std::size_t kMostStreams = 128;
constexpr int kTimes = 3;                       // of which the quickest counts: nothing was in between
constexpr std::size_t kShort = 1, kLong = 256;  // elements of rows
constexpr std::size_t kShortRows = 4096, kLongRows = 512;  // of all streams together

// Of float rows of which some are in two streams. Seconds of one.
double seconds_of_row(std::size_t streams, std::size_t rows, std::size_t width) {
  const std::size_t of_each = std::max<std::size_t>(rows / streams, 1), all = of_each * streams;
  std::vector<std::int64_t> keys(all), merged(all);
  for (std::size_t s = 0; s < streams; ++s)
    for (std::size_t i = 0; i < of_each; ++i)
      keys[s * of_each + i] = static_cast<std::int64_t>(i * (streams + 1) + s / 2 * 2);
  const std::vector<float> values(all * width, 1.0F);
  std::vector<float> sum(all * width);
  double least = std::numeric_limits<double>::infinity();
  for (int times = 0; times < kTimes; ++times) {
    std::vector<kernel::KeyedRows> of;
    for (std::size_t s = 0; s < streams; ++s)
      of.push_back({keys.data() + s * of_each, values.data() + s * of_each * width, of_each});
    const std::int64_t began_ns = live::now_ns();
    kernel::merge_rows(of, DataType::f32, width, merged.data(), sum.data());
    least = std::min(least, static_cast<double>(live::now_ns() - began_ns) * 1e-9);
  }
  return least / static_cast<double>(all);
}

}  // namespace

// Each row is looked for in all streams: of very many it takes as much more.
MergePrices measure_merging(std::size_t streams) {
  const std::size_t tried = std::min(streams, kMostStreams);
  const double times = static_cast<double>(streams) / static_cast<double>(tried);
  const double of_short = seconds_of_row(tried, kShortRows, kShort) * times;
  const double of_long = seconds_of_row(tried, kLongRows, kLong) * times;
  const double per_byte = std::max(0.0, of_long - of_short) / double{(kLong - kShort) * sizeof(float)};
  return {static_cast<float>(protocol::rounded(of_short)), static_cast<float>(protocol::rounded(per_byte))};
}

double seconds_by_trees(const TreePrices& prices, double rows, std::size_t row_bytes) {
  const auto bytes = static_cast<double>(row_bytes);
  return 2 * prices.words + prices.per_byte * rows * (bytes + double{sizeof(std::int64_t)}) +
         rows * (double{prices.merging.per_row} + double{prices.merging.per_byte} * bytes);
}

}  // namespace talweg::group
