// Rows of gradients from another rank: refused with an Error before anything is written, or added, and then
// just the rows that they name. Two bytes say the width and how many parameters there are, one each how long
// they are.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "steer/gradient_rows.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t parameters = std::min<std::size_t>(data[1] % 8, size - 2);
  const std::vector<std::size_t> counts(data + 2, data + 2 + parameters);
  const steer::GradientRows rows(counts, data[0]);
  const std::size_t begin = 2 + parameters;
  std::vector<std::uint32_t> payload((size - begin) / 4);
  if (!payload.empty()) std::memcpy(payload.data(), data + begin, 4 * payload.size());
  const std::vector<float> zeros(rows.count());
  std::vector<float> sums = zeros;
  bool added = false;
  fuzz::may_refuse([&] {
    rows.add(payload, sums.data());
    added = true;
  });
  if (!added) {
    fuzz::require(sums == zeros);
    return 0;
  }
  const std::span<const std::uint32_t> chosen(payload.data() + 1, payload[0]);
  fuzz::require(rows.packed_words(chosen) == payload.size());
  std::vector<std::uint32_t> again(payload.size());
  rows.pack(sums.data(), chosen, nullptr, again.data());
  fuzz::require(std::equal(chosen.begin(), chosen.end(), again.begin() + 1));
  return 0;
}
