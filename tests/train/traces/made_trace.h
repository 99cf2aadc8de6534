// Kineto traces whose truth is known: a model's steps, laid out in time as PyTorch's profiler would have seen
// them.
//
//   MadeTrace made{.layers = {{.op = "aten::conv2d", .forward = 3000, ...}}, ...};
//   write_kineto(made, rank, [&](std::string_view text) { file << text; });
//
// On the host alone (gloo) operators take the layers' times. With `cuda`, each operator launches one kernel,
// which takes the layer's time; whether it was launched in time, `late` says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "talweg/types.h"

namespace talweg::train {

struct MadeLayer {
  std::string op = "aten::linear";
  std::int64_t forward = 0, backward = 0;          // ns
  std::int64_t forward_gap = 0, backward_gap = 0;  // behind it
  std::vector<std::int64_t> parameters{};          // elements, in the order in which they are ready
};

struct MadeTransfer {
  std::int64_t elements = 0;
  int element_bytes = 4;
  std::int64_t time = 0;                  // ns on the wire
  std::vector<std::int64_t> waits = {0};  // by rank, modulo their number: for peers, within the transfer
};

struct MadeTrace {
  std::vector<MadeLayer> layers{};     // in forward order
  std::vector<std::size_t> buckets{};  // parameters of each, in the order in which they are ready
  std::vector<MadeTransfer>
      reduced{};  // a transfer for each bucket; elements are worked out where they are 0
  std::vector<MadeTransfer> broadcast{};  // before the forward pass
  std::vector<MadeTransfer> behind{};     // the backward pass, before the optimiser
  int jump_step = -1;     // from the backward pass of this one on, counted from 0, the clock is
  std::int64_t jump = 0;  // so many ns ahead
  int world = 2, first_step = 3, steps = 3;
  std::int64_t input = 0, copy = 0, update = 0, tail = 0;  // ns; the copy is there with cuda only
  bool cuda = false;
  bool host_runs = false;  // with cuda: transfers, as gloo does; what is sent is copied to the host and back
  bool compiled = false;   // the operators of the forward pass stand within one of their own
  bool late = false;  // kernels behind a gap are launched at its end; else at once, and wait in the stream
  bool old_names = false;       // ncclKernel_ and whole microseconds' names of old traces
  bool marks = true;            // ProfilerStep#N
  bool optimizer = true;        // Optimizer.step
  bool ids = true;              // "Record function id"; else 0, as where no execution trace is recorded
  bool shapes = true;           // Input Dims
  bool distributed = true;      // distributedInfo
  bool children_first = false;  // operators come behind those that they contain
  int children = 1;             // operators within each
  int strangers = 0;            // events of no interest, behind each operator
  std::int64_t base = 1'790'857'026'000'000'000;
  std::int64_t begin = 4'668'518'571'554'179;  // ns of the first step
  std::int64_t pid = 12402;
};

using Sink = std::function<void(std::string_view)>;

// Calls `sink` with the text, piece by piece.
void write_kineto(const MadeTrace& made, int rank, const Sink& sink);
std::string kineto_text(const MadeTrace& made, int rank);

}  // namespace talweg::train
