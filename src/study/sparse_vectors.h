// Vectors of which only some elements hold something, as in OmniReduce's measurements, and how these travel
// to a switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "talweg/types.h"
#include "wire/aggregation.h"

namespace talweg::study {

// Which elements hold something on which ranks.
enum class Overlap {
  random,  // each rank draws its own
  all,     // the same on all ranks
  none,    // none on two ranks
};

enum class SparseForm {
  blocks,  // those that hold something
  pairs,   // of key and value, of what is not zero
  dense,   // all
};

struct SparseShape {
  double density =
      1;  // share of runs that hold something, on each rank; 1: dense, and sent as that but for pairs
  Overlap overlap = Overlap::random;
  std::size_t run = 0;  // elements that hold something together, or not; 0: a block's
  SparseForm form = SparseForm::blocks;

  bool by_blocks() const { return density < 1 && form == SparseForm::blocks; }
  bool by_pairs() const { return form == SparseForm::pairs; }
};

// Of --overlap and --sparse-as; empty: the first one. Throw Error{invalid_argument}.
Overlap parse_overlap(const std::string& text);
SparseForm parse_sparse_form(const std::string& text);
// Throws Error{invalid_argument} that names the flag: for overlaps that cannot be, for types without pairs.
void check_sparse(const SparseShape& shape, const std::vector<DataType>& types, int ranks);

// Of --switch-format; "" and "type": empty. Throws Error{invalid_argument}.
std::optional<wire::AggregationFormat> parse_floats_as(const std::string& text);
// Throws Error{invalid_argument} that names the flag: for types that are not float, and pairs.
void check_floats_as(std::optional<wire::AggregationFormat> format, const SparseShape& shape,
                     const std::vector<DataType>& types);

// Whether run `run` of this rank holds anything.
bool holds(const SparseShape& shape, int rank, int ranks, std::uint64_t run);
// Share of runs that hold something on any rank.
double union_density(const SparseShape& shape, int ranks, std::uint64_t runs);
// What travels to each worker as a share of the vector's bytes, where blocks have so many elements and what
// surrounds them is as large as of whole blocks.
double travelling(const SparseShape& shape, int ranks, std::size_t block);
// The same of what travels from each.
double sent_by_each(const SparseShape& shape, std::size_t block);

// Zeros the runs of the rank's vector that hold nothing; a block has so many bytes.
void clear_what_is_not_held(const SparseShape& shape, int rank, int ranks, std::size_t block_bytes,
                            std::size_t element_bytes, std::span<std::byte> vector);

// A line that says how many runs hold something, and how they travel; empty for dense vectors.
std::string sparseness(const SparseShape& shape, int ranks);

}  // namespace talweg::study
