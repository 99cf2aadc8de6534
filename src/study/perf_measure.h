// Times and checks one line of `talweg perf` on a live group.
#pragma once

#include <cstddef>
#include <memory>

#include "study/perf_case.h"
#include "study/perf_options.h"
#include "study/perf_table.h"
#include "talweg/group.h"

namespace talweg::study {

// Memory for the calls of one rank that are in flight together: one slot each, since a buffer belongs to its
// call until that is done. Slots never overlap.
class PerfBuffers {
 public:
  // Room for `calls` calls of the largest of `sizes`; smaller sizes get more slots out of the same memory.
  PerfBuffers(const PerfOptions& options, int ranks);

  struct Slot {
    std::byte* in;
    std::byte* out;
  };
  // The slots for a case, at least options.aggregate.
  std::size_t slots(const PerfCase& c) const;
  Slot slot(const PerfCase& c, std::size_t index) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::size_t stride(const PerfCase& c) const;

  std::size_t bytes_;  // of each of in_ and out_
  bool misaligned_;
  std::size_t least_slots_;
  std::unique_ptr<std::byte, Free> in_, out_;
};

// Every rank calls these together. All ranks get the same values. Throw what the group throws, and
// Error{timeout} when options.timeout passes.
Timing measure(Group& group, const PerfCase& c, const PerfOptions& options, const PerfBuffers& buffers,
               bool in_place);

}  // namespace talweg::study
