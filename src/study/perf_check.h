// The data of `talweg perf` and the serial reference that results are held against, exactly.
//
// Every rank's input is a deterministic pattern of small integers whose sums and products are exact in the
// type, so that the order of additions cannot excuse a difference. The pattern repeats after a prime number
// of elements: data can be made and compared at memory speed, and yet a chunk that lands in the place of
// another one, or of another rank, or is added twice, is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "study/perf_case.h"
#include "talweg/types.h"

namespace talweg::study {

inline constexpr std::size_t kPatternPeriod = 16381;  // prime, so that no chunk or part is a multiple of it

class Pattern {
 public:
  // What rank `rank` of c.ranks contributes. `seed` changes all values: use another one for each check.
  static Pattern of_rank(const PerfCase& c, int rank, std::uint64_t seed);
  // What c.reduce makes of all ranks' patterns (avg: divided at the end, as the library documents).
  static Pattern reduced(const PerfCase& c, std::uint64_t seed);

  // Elements first .. first + count - 1 of the endless pattern.
  void write(void* data, std::size_t first, std::size_t count) const;
  std::size_t count_wrong(const void* data, std::size_t first, std::size_t count) const;

 private:
  Pattern(DataType type) : element_(size_of(type)), values_(element_ * kPatternPeriod) {}

  std::size_t element_;
  std::vector<std::byte> values_;
};

// A rank's input of a case, laid out as talweg/group.h says.
void write_input(const PerfCase& c, int rank, std::uint64_t seed, void* input);
std::size_t count_wrong_input(const PerfCase& c, int rank, std::uint64_t seed, const void* input);
// Elements of this rank's output that are not what a serial run would give.
std::size_t count_wrong_output(const PerfCase& c, int rank, std::uint64_t seed, const void* output);

}  // namespace talweg::study
