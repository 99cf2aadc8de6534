// Whether a sum whose vectors travelled in codes (protocol/aggregation/coded_blocks.h) is what inputs and
// residuals say.
//
//   const CodedCheck check(c, format, block, residual, input);      // before the sum, on each rank
//   wrong = check.count_wrong(group, sum, racks);                   // after it, on all ranks together
//
// What a rank contributed is input + residual before - residual after. So a sum may differ from all of these
// by what was taken from it where it was coded itself alone: less than a unit, which is the largest magnitude
// of the values that have a scale in common / 127 or / 7, and below a switch for each rack by one of each of
// these. As the unit may be more than one rank's values, a rank that is not in the sum, or twice, is found by
// what all of the errors have in common with its values: rounding at random has a mean of zero, and so has
// their inner product with anything that it does not depend on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "study/perf_case.h"
#include "talweg/group.h"
#include "wire/aggregation.h"

namespace talweg::study {

class CodedCheck {
 public:
  // Of c.count floats, in blocks of `block` elements. `residual` has as many, outlives this, and is read
  // again after the sum.
  CodedCheck(const PerfCase& c, wire::AggregationFormat format, std::size_t block, const std::byte* residual,
             const std::vector<std::byte>& input);

  // Elements of this rank's `sum` that are further off than they may be, or all, where ranks have different
  // bits or the sum does not have what this one contributed, once. All ranks call it together. `racks`: 1:
  // one switch sums.
  std::uint64_t count_wrong(Group& group, const std::byte* sum, int racks) const;

 private:
  std::size_t end_of_scale(std::size_t first) const;

  const std::size_t count_, block_;
  const wire::AggregationFormat format_;
  const std::byte* const residual_;
  std::vector<double> before_;  // what is to be contributed
};

}  // namespace talweg::study
