// From what one rank's trace holds to what its steps were made of.
//
// Which operators make up the model: those of the forward pass whose sequence number, or a later one up to
// the next operator's, an operator of the backward pass has. Such an operator is a layer; what runs between
// layers (and is not differentiated) counts to the one before it. A parameter belongs to the layer whose
// backward function ran just before its gradient was ready.
//
// Where a trace has kernels, a layer's times are those of the kernels that its operators launched; else those
// of the operators. Time between two pieces of work is a gap of the first one's layer: a launch gap until the
// second one was launched, a stream gap from there. Calls of collectives within an operator are such gaps,
// too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "talweg/types.h"
#include "train/traces/buckets.h"
#include "train/traces/kineto_trace.h"

namespace talweg::train {

struct LayerTimes {
  std::int64_t forward = 0, backward = 0, forward_gap = 0, backward_gap = 0;  // ns
  bool operator==(const LayerTimes&) const = default;
};

struct StepTimes {
  std::int64_t number = 0;
  std::int64_t step = 0, input = 0, copy = 0, update = 0, exposed = 0, launch_gap = 0, stream_gap = 0;  // ns
  std::vector<LayerTimes> layers;
  int in_flight = 1;                    // the most transfers that ran at once
  std::vector<std::int64_t> transfers;  // how long each took on this rank, in turn
};

// What is the same in all steps.
struct StepShape {
  std::vector<std::string> layers;
  std::vector<std::int64_t> gradients;  // bytes
  struct Transfer {
    Collective op = Collective::all_reduce;
    std::int64_t bytes = 0;
    std::vector<int> layers;
    bool operator==(const Transfer&) const = default;
  };
  std::vector<Transfer> transfers;
  bool operator==(const StepShape&) const = default;
};

struct RankSteps {
  StepShape shape;
  std::vector<StepTimes> steps;
  std::optional<BucketCaps> caps;
  std::vector<std::string> notes;
};

// Throws Error{bad_file}: where there are no whole steps, steps of different models, or several passes in a
// step.
RankSteps steps_of(const KinetoTrace& trace);

}  // namespace talweg::train
