// `talweg perf --switch`: times and checks sums that a switch makes (live/aggregation), of dense vectors and
// of those in which only some elements are not zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "live/aggregation/switch_client.h"
#include "study/perf_options.h"
#include "study/perf_table.h"
#include "study/sparse_vectors.h"
#include "talweg/group.h"

namespace talweg::study {

struct SwitchPerfOptions {
  std::string address;  // host:port; empty: no switch
  std::string job = "perf";
  // With the switch's key; empty: it has none. It is not the group's, which talweg run draws for each.
  std::string key_file;
  SparseShape sparse;
  bool exact = false;     // float32 as integers of a common scale
  bool ordered = false;   // float32 in the order of ranks
  std::size_t block = 0;  // elements; 0: as the switch finds best
  // A coded format that float travels in, with a residual on each rank; empty: as it is.
  std::optional<wire::AggregationFormat> floats_as{};
};

// Blocks of all ranks in timed calls, of which a part may be missing.
struct MissingBlocks {
  std::uint64_t all = 0, missing = 0;
  LostPart part() const;
};

// Throws Error{invalid_argument} that names the flag for what a switch does not do: it sums float, half,
// bfloat16 and int32 in all-reduce; one call at a time. A part may be missing of float alone, dense and not
// exact.
void check_switch_perf(const SwitchPerfOptions& options, const PerfOptions& perf, int ranks);
// To join the switch as this rank of its job: all ranks call it together, and those that name the same switch
// are its workers. Throws Error{invalid_argument} that names the flag.
live::SwitchClientOptions switch_client_options(const SwitchPerfOptions& options, const PerfOptions& perf,
                                                Group& group);
// "switch: 2 threads x 31 slots x 15 columns of 256 elements, checksum"; with how many racks there are.
std::string describe(const wire::SwitchOpened& terms, int racks);
// All ranks call it together; the group is for what they agree on, and carries nothing that is timed.
// Where a part may be missing, the calls of the first side come after some that lose nothing; what is missing
// goes out with the next call, and in those that are checked all ranks' residuals are added up: nothing may
// be gone, and no rank may miss more than that. Where float travels in codes each rank has a residual, too,
// and sums have to be the same bits on all ranks, and no further from what inputs and residuals say than the
// last codings may be off (coded_check.h); they are at one switch, or below one at those of so many `racks`.
// Adds to `missing`, the same on all ranks.
Timing measure_switch(Group& group, live::SwitchClient& client, const PerfCase& c, const PerfOptions& options,
                      const SwitchPerfOptions& how, bool in_place, MissingBlocks& missing, int racks = 1);

}  // namespace talweg::study
