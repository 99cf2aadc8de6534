// One trace out of those of all ranks: a process for each rank, all times on rank 0's clock.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace talweg::observe {

struct MergedTrace {
  int ranks = 0;
  std::size_t events = 0;
  std::size_t arrows = 0;               // from a chunk's sender to its receiver, both ends found
  std::size_t left_out = 0;             // events that were past a rank's limit
  double clock_error_us = 0;            // of the worst rank; negative: some were laid on the wall clock
  std::vector<std::string> unreadable;  // files that were left out: which, and what was expected
};

// Reads what trace.cc wrote; a file that ends in the middle is taken as far as it goes.
MergedTrace merge_traces(const std::vector<std::string>& files, std::ostream& out);

}  // namespace talweg::observe
