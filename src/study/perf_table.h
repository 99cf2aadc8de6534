// What `talweg perf` prints: the lines of nccl-tests, so that scripts which read those read these, and the
// same as JSON. Talweg's own columns stand to the right of theirs, where there is room. Pure functions: text
// in, text out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/perf_case.h"
#include "study/perf_options.h"

namespace talweg::study {

// One side (out of place or in place) of one line.
struct Timing {
  double time_us = 0;  // of one call
  double p50_us = 0;
  double p99_us = 0;
  std::optional<std::uint64_t> wrong;  // elements on all ranks; empty: not checked
};

// Of sums of which a part may be lost (talweg/bounded_loss.h), over all ranks and the timed calls.
struct LostPart {
  double part = 0;         // of what ranks sent each other
  double important = 0;    // of that, what was in packets that were not droppable
  bool by_switch = false;  // a part of all workers' blocks, which are missing in the sums
  std::uint64_t calls = 0, calls_by_switch = 0;  // of a group's bounded sums
};

struct PerfRow {
  PerfCase what;
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;  // empty where the library takes no such call
  std::string plan;                // Group::explain: "ring, 64 chunks of 64 KiB, predicted 8.9 ms"
  std::string timestamp;           // empty: not asked for
  std::optional<LostPart> lost{};  // empty: nothing may be lost
};
// "ring"; "-" where the row has no plan.
std::string algorithm_of(const PerfRow& row);

// GB/s = 1e9 bytes/s. 0 when nothing moved.
double algorithm_bandwidth(const PerfCase& c, const Timing& timing);
double bus_bandwidth(const PerfCase& c, const Timing& timing);

struct PerfSetup {
  std::string version;
  std::vector<std::string> hosts;  // "hostname pid" of each rank
  std::string description;         // Group::describe
  bool hint_one_rank = false;
};

struct PerfTotals {
  std::uint64_t wrong = 0;
  double average_bus_bandwidth = 0;       // GB/s, over all sides of all lines
  std::uint64_t wire_bytes = 0;           // sent by all ranks in the whole run
  std::uint64_t peak_buffer_bytes = 0;    // of the rank that held most
  std::uint64_t shared_memory_bytes = 0;  // of the rank that maps most
};

PerfTotals summed(const std::vector<PerfRow>& rows);  // wrong and average_bus_bandwidth

std::string header_text(const PerfOptions& options, const PerfSetup& setup);
std::string row_text(const PerfOptions& options, const PerfRow& row);
// "# Algorithm            : one_hop for 4 KiB, ring for 64 KiB to 1 MiB", where the table has no room for it.
std::string algorithms_text(const PerfOptions& options, const std::vector<PerfRow>& rows);
// A sentence for each row of which at most the part `may_lose` may be lost, with the limits beside it that
// `options` has; `droppable`: whether packets were.
std::vector<std::string> lost_sentences(const PerfOptions& options, const std::vector<PerfRow>& rows,
                                        double may_lose, bool droppable);
std::string footer_text(const PerfTotals& totals);

nlohmann::json to_json(const PerfOptions& options, const PerfSetup& setup, const std::vector<PerfRow>& rows,
                       const PerfTotals& totals);

}  // namespace talweg::study
