// What a sum of sparse tensors by trees is expected to take, beside which the switch's is laid
// (rows_switch.h): what ranks tell each other first, what they give each other, and what each of them takes
// to merge all that it gets.
#pragma once

#include <cstddef>

namespace talweg::group {

// In seconds.
struct MergePrices {
  float per_row = 0, per_byte = 0;  // of the rows of all ranks together
};

// Of a processor of this rank, for so many streams; a few milliseconds.
MergePrices measure_merging(std::size_t streams);

struct TreePrices {
  double words = 0;     // what each rank tells each other one
  double per_byte = 0;  // of what ranks give each other
  MergePrices merging = {};
};

// Of so many rows of all ranks together. Two gathers, of keys and of values; and of a switch's sum the ranks
// tell each other that they have it.
double seconds_by_trees(const TreePrices& prices, double rows, std::size_t row_bytes);

}  // namespace talweg::group
