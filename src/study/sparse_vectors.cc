#include "study/sparse_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/fail.h"
#include "base/random.h"

namespace talweg::study {

namespace {

constexpr std::uint64_t kMaskSeed = 0x5ca1ab1e;
constexpr std::uint64_t kRuns = 100'000;  // enough to say what share of them holds something
constexpr const char* kOverlaps[] = {"random", "all", "none"};
constexpr const char* kForms[] = {"blocks", "pairs", "dense"};

template <class Word>
Word parse_word(const char* flag, const char* const (&words)[3], const std::string& text) {
  if (text.empty()) return Word{};
  const auto* const found = std::find(std::begin(words), std::end(words), text);
  if (found == std::end(words))
    refuse("{}: expected {}, {} or {}, got \"{}\"", flag, words[0], words[1], words[2], text);
  return static_cast<Word>(found - std::begin(words));
}

// Of a vector of whose runs so many hold something.
double as_it_travels(const SparseShape& shape, double held, std::size_t block) {
  if (shape.form == SparseForm::pairs)
    return held * static_cast<double>(wire::element_bytes(wire::AggregationFormat::pairs)) / sizeof(float);
  if (shape.run == 0 || shape.run >= block) return held;
  // Some run in a block is enough.
  return 1 - std::pow(1 - held, static_cast<double>(block) / static_cast<double>(shape.run));
}

}  // namespace

Overlap parse_overlap(const std::string& text) {
  return parse_word<Overlap>("--overlap", kOverlaps, text);
}

SparseForm parse_sparse_form(const std::string& text) {
  return parse_word<SparseForm>("--sparse-as", kForms, text);
}

void check_sparse(const SparseShape& shape, const std::vector<DataType>& types, int ranks) {
  if (shape.overlap == Overlap::none && shape.density < 1 && shape.density * ranks > 1)
    refuse("--overlap none: {} ranks cannot have {} of all blocks each and none in common", ranks,
           shape.density);
  for (const DataType type : types)
    if (shape.by_pairs() && type != DataType::f32)
      refuse("--sparse-as pairs: pairs are of float, not of {}", name(type));
}

std::optional<wire::AggregationFormat> parse_floats_as(const std::string& text) {
  const auto format = wire::format_of_floats(text.empty() ? "type" : text);
  if (!format) refuse("--switch-format: expected {}, got \"{}\"", wire::kFormatsOfFloats, text);
  return wire::is_coded(*format) ? format : std::nullopt;
}

void check_floats_as(std::optional<wire::AggregationFormat> format, const SparseShape& shape,
                     const std::vector<DataType>& types) {
  if (!format) return;
  for (const DataType type : types)
    if (type != DataType::f32)
      refuse("--switch-format {} is for -d float, not for {}", wire::name(*format), name(type));
  if (shape.by_pairs())
    refuse("--switch-format {}: pairs have floats as they are: expected --sparse-as blocks or dense",
           wire::name(*format));
}

bool holds(const SparseShape& shape, int rank, int ranks, std::uint64_t run) {
  switch (shape.overlap) {
    case Overlap::all:
      return Random(kMaskSeed, run).uniform() < shape.density;
    case Overlap::none: {
      // One draw for all ranks says whose the run is.
      const double draw = Random(kMaskSeed, run).uniform() / shape.density;
      return draw < ranks && static_cast<int>(draw) == rank;
    }
    case Overlap::random:
      break;
  }
  return Random(kMaskSeed + 1 + static_cast<std::uint64_t>(rank), run).uniform() < shape.density;
}

double union_density(const SparseShape& shape, int ranks, std::uint64_t runs) {
  if (shape.density >= 1 || runs == 0) return 1;
  std::uint64_t held = 0;
  for (std::uint64_t run = 0; run < runs; ++run)
    for (int rank = 0; rank < ranks; ++rank)
      if (holds(shape, rank, ranks, run)) {
        ++held;
        break;
      }
  return static_cast<double>(held) / static_cast<double>(runs);
}

double travelling(const SparseShape& shape, int ranks, std::size_t block) {
  return shape.form == SparseForm::dense ? 1
                                         : as_it_travels(shape, union_density(shape, ranks, kRuns), block);
}

double sent_by_each(const SparseShape& shape, std::size_t block) {
  return shape.form == SparseForm::dense ? 1 : as_it_travels(shape, std::min(shape.density, 1.0), block);
}

void clear_what_is_not_held(const SparseShape& shape, int rank, int ranks, std::size_t block_bytes,
                            std::size_t element_bytes, std::span<std::byte> vector) {
  if (shape.density >= 1) return;
  const std::size_t bytes = shape.run == 0 ? block_bytes : shape.run * element_bytes;
  for (std::size_t at = 0, run = 0; at < vector.size(); at += bytes, ++run)
    if (!holds(shape, rank, ranks, run))
      std::memset(vector.data() + at, 0, std::min(bytes, vector.size() - at));
}

std::string sparseness(const SparseShape& shape, int ranks) {
  if (shape.density >= 1) return {};
  const std::string what = shape.run == 0   ? "blocks"
                           : shape.run == 1 ? "elements"
                                            : fmt::format("runs of {} elements", shape.run);
  constexpr const char* kAs[] = {"", ", as pairs", ", all of them sent"};
  return fmt::format("sparse: {} of the {} on each rank, overlap {}: {:.3g} on any{}\n", shape.density, what,
                     kOverlaps[static_cast<int>(shape.overlap)], union_density(shape, ranks, kRuns),
                     kAs[static_cast<int>(shape.form)]);
}

}  // namespace talweg::study
