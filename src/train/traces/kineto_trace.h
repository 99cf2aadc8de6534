// What is kept of one rank's Kineto trace: operators that no other contains, kernels, transfers and steps.
// Memory grows with those, 40 bytes each, not with the length of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "talweg/types.h"
#include "train/traces/trace_file.h"

namespace talweg::train {

// Of a PyTorch execution trace: what has a size but no time, by the id of its call (rf_id).
struct ExecutionSizes {
  std::int64_t pid = -1;
  struct Size {
    std::int64_t elements = -1;
    int element_bytes = 0;
  };
  std::map<std::int64_t, Size> by_function;
};

struct KinetoOp {
  enum class Kind : std::uint8_t {
    plain,       // of the forward pass, of the input, of what comes after
    backward,    // the engine calls a backward function
    accumulate,  // a parameter's gradient is ready
    optimizer,   // a step of it, or zero_grad
    call,        // of a collective
  };
  std::int64_t begin = 0, end = 0;
  std::int64_t sequence = -1;
  std::int64_t elements = -1;
  std::int32_t name = 0;  // in KinetoTrace::names
  std::int16_t thread = 0;
  Kind kind = Kind::plain;
  std::uint8_t element_bytes = 0;
};

struct KinetoKernel {
  std::int64_t begin = 0, end = 0;
  std::int64_t correlation = -1;
  std::int64_t launched = 0;  // when its launch began; where the trace does not say: when it began itself
  std::int32_t thread = -1;   // that launched it; -1: the trace does not say
  bool copies_in = false;     // from the host's memory
  bool copies_out = false;    // to it
};

// A collective that was called, or one that ran.
struct KinetoTransfer {
  Collective op = Collective::all_reduce;
  std::int64_t begin = 0, end = 0;
  std::int64_t elements = -1;
  int element_bytes = 0;
  std::int64_t called = 0;        // when: what ran may have waited for its turn
  std::int64_t function = -1;     // id of the call
  std::int64_t correlation = -1;  // of a kernel
  std::int32_t thread = -1;
  std::ptrdiff_t call = -1;  // of what ran: its place among the calls; -1: not known
};

struct KinetoStep {
  std::int64_t number = 0, begin = 0, end = 0;
};

struct KinetoTrace {
  std::string path;
  int rank = -1;          // -1: it does not say
  int world = 0;          // 0: it does not say
  int largest_group = 0;  // ranks that a collective was among, the most; 0: it does not say
  std::string backend;
  std::int64_t pid = -1;
  std::int64_t base = 0;             // ns that times count from
  std::int64_t first = 0, last = 0;  // of the operators
  std::vector<std::string> names;
  std::deque<KinetoOp> ops;           // in order of their begins, none within another
  std::deque<KinetoKernel> kernels;   // in order of their launches
  std::vector<KinetoTransfer> calls;  // in order of their begins
  // In the order of their calls. One that the host runs for a device begins when that comes to copy out what
  // is sent, and ends when the result is back; these copies are no kernels.
  std::vector<KinetoTransfer> runs;
  std::vector<KinetoStep> steps;  // ProfilerStep#N
  bool has_step_marks() const { return !steps.empty(); }
};

// `sizes`, if any, are used for processes of their pid. Throws Error{bad_file}.
KinetoTrace read_kineto(const std::string& path, const std::vector<ExecutionSizes>& sizes,
                        const OnRead& on_read = {});

}  // namespace talweg::train
