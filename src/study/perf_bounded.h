// `talweg perf --may-lose`: times and checks all-reduces of which a bounded part may be lost
// (talweg/bounded_loss.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/bounded/loss_budget.h"
#include "study/perf_measure.h"
#include "study/perf_options.h"
#include "study/perf_table.h"
#include "talweg/bounded_loss.h"
#include "talweg/group.h"

namespace talweg::study {

// Throws Error{invalid_argument} that names the flag for what such sums do not do. They are all-reduces that
// sum floating-point numbers, one call at a time.
void check_bounded_perf(const PerfOptions& options);

// Bytes of all ranks in timed calls.
struct LostBytes {
  std::uint64_t sent = 0, lost = 0, lost_important = 0;
  std::uint64_t calls = 0, calls_by_switch = 0;  // of one rank
  LostPart part() const;
};

// All ranks call it together and get the same; the group is for what they agree on, and carries nothing that
// is timed. Before the timed calls of the first side come those that lose nothing. What may be lost is gone
// in timed calls; in those that are checked it is in residuals, with which every element has to come to what
// a serial run gives. Of a rank's data no more may be missing than `sums` allow: each element above that is
// wrong, too. Adds to `lost`.
Timing measure_bounded(Group& group, BoundedSums& sums, const PerfCase& c, const PerfOptions& options,
                       const PerfBuffers& buffers, bool in_place, LostBytes& lost);

// Elements above the bound that `report` says are missing of others' data in this rank's part of the sum,
// which has so many; the whole of a sum that a switch has made.
std::uint64_t lost_beyond(const LossReport& report, const PerfCase& c, std::size_t part, double may_lose);

// The same of the limits beside it, over calls of one size that follow each other.
class LostBeyondLimits {
 public:
  // A part of so many bytes, and the whole, which counts where a switch has made the sum.
  LostBeyondLimits(const PerfOptions& options, std::size_t part, std::size_t whole);
  void add(const LossReport& report);
  std::uint64_t bytes() const { return beyond_call_ + beyond_sender_; }

 private:
  const protocol::LossBounds bounds_;
  const std::uint64_t part_, whole_;
  std::uint64_t sent_ = 0, beyond_call_ = 0, beyond_sender_ = 0;  // sent_: by each, of all calls
  std::vector<std::uint64_t> lost_;                               // by sender, of all calls
};

}  // namespace talweg::study
