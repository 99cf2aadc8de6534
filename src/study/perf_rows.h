// `talweg perf --sparse-rows`: times and checks sums of sparse tensors (talweg/sparse_rows.h), of which each
// rank has some rows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/perf_options.h"
#include "study/perf_table.h"
#include "study/sparse_vectors.h"
#include "talweg/group.h"

namespace talweg::study {

struct RowsPerfOptions {
  std::size_t width = 0;  // elements of a row; 0: sums are not of rows
  // Of rows, as of runs: each rank has the share `density` of those that there could be.
  SparseShape sparse = {};
};

// Throws Error{invalid_argument} that names the flag for what such sums do not do: they are all-reduces that
// sum, one call at a time, of sizes of which some hold a row.
void check_rows_perf(const RowsPerfOptions& options, const PerfOptions& perf, int ranks);

// As perf_cases(), of each line's elements as many as are whole rows: lines that hold none are left out, and
// of those that are the same one is left. Throws Error{invalid_argument} when none is left.
std::vector<PerfCase> rows_cases(const RowsPerfOptions& options, const PerfOptions& perf, int ranks);

// "rows of 64 elements: 0.1 of them on each rank, overlap random: 0.271 on any"
std::string describe_rows(const RowsPerfOptions& options, int ranks);

// Of timed calls.
struct RowsWays {
  int calls = 0, by_switch = 0;
  // "switch", "trees", or "switch in 12 of 20 calls".
  std::string describe() const;
};

// Of a tensor that has c.count elements where no row is left out, which the size counts. All ranks call it
// together and get the same; the call makes its result's memory, which is timed as well. Which keys a checked
// call has come to, and every element, is held against a serial sum.
Timing measure_rows(Group& group, const PerfCase& c, const PerfOptions& options, const RowsPerfOptions& how,
                    RowsWays& ways);

}  // namespace talweg::study
