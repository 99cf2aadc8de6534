// What ranks' times of one line of `talweg perf` come to.
#pragma once

#include <vector>

#include "study/perf_options.h"
#include "study/perf_table.h"
#include "talweg/group.h"

namespace talweg::study {

// Of this rank's times in microseconds: of each iteration, and of all of them together. All ranks call it
// together and get the same, by the rule that -a names; what is checked is left to the caller.
Timing timing_of(Group& group, const PerfOptions& options, std::vector<double> iterations, double total);

}  // namespace talweg::study
