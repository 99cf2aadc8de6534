// GradientRows: some rows of a bucket of gradients, as they are sent where most of it is not worth sending,
// and added up again.
//
//   const GradientRows rows(counts, 1);                       // of one element; or of a block, or an embedding
//   const auto chosen = rows.top(gradients, 0.01);            // first elements of the chosen rows, ascending
//   rows.pack(gradients, chosen, residual, payload);          // payload: rows.packed_words(chosen) words
//   rows.add(payload, sums);                                  // each rank's, in rank order
//
// Every parameter is cut into rows by itself; a parameter that is shorter than a row is one row of its own
// length. A payload is words of 32 bits in the order of the machine: how many rows, the first element of each
// (ascending), then their values, where a parameter's last row may be padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace talweg::steer {

class GradientRows {
 public:
  using Chosen = std::vector<std::uint32_t>;

  // `counts`: elements of each parameter. Throws Error{unsupported} for 2^31 elements or more.
  GradientRows(std::span<const std::size_t> counts, std::size_t width);

  std::size_t count() const { return count_; }  // elements of the bucket

  // Of every parameter the rows of largest L2 norm, of equal ones the first: `ratio` of them, at least one.
  Chosen top(const float* gradients, double ratio) const;
  // All rows that have an element of this magnitude or more; NaN is more than any.
  Chosen at_least(const float* gradients, float least) const;
  // Of every parameter any rows, `ratio` of them and at least one; `numbers` are the parameters' own, so that
  // what is chosen of one does not depend on the bucket.
  Chosen random(double ratio, std::uint64_t seed, std::span<const std::uint64_t> numbers) const;

  std::size_t packed_words(std::span<const std::uint32_t> chosen) const;
  // Where there is a residual, it becomes what was not sent. Values that are not finite are not kept: they
  // would never leave it.
  void pack(const float* gradients, std::span<const std::uint32_t> chosen, float* residual,
            std::uint32_t* payload) const;
  // Adds a payload's rows to `sums`. Trusts nothing: throws Error{mismatch} unless it is one that pack()
  // could have made, before anything is written.
  void add(std::span<const std::uint32_t> payload, float* sums) const;

 private:
  struct Parameter {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t width = 0;
    std::size_t rows = 0;
    std::size_t place = 0;  // among all, those without elements too
  };

  // Calls visit(first element, width with padding, width without) of each chosen row; false where one is
  // none.
  template <class Visit>
  bool for_each_row(std::span<const std::uint32_t> chosen, Visit visit) const;
  static std::size_t part_of(const Parameter& parameter, double ratio);

  std::vector<Parameter> parameters_;
  std::size_t count_ = 0;
};

}  // namespace talweg::steer
