// One step of a trace, taken apart. Used by kineto_steps.cc alone.
#pragma once

#include <optional>
#include <string>

#include "train/traces/kineto_steps.h"

namespace talweg::train {

// What a step holds that its shape does not say.
struct StepSeen {
  StepShape shape;
  StepTimes times;
  std::optional<BucketCaps> caps;
  bool sizes_known = true;      // of all parameters, in elements
  bool buckets_matched = true;  // parameters in order make up the buckets
  bool bytes_known = true;      // of all transfers
  int without_gradients = 0;    // transfers of the backward pass, or behind it, that the buckets leave over
};

// Nothing, if no backward pass is within it. Throws Error{bad_file}.
std::optional<StepSeen> see_step(const KinetoTrace& trace, const KinetoStep& step);

}  // namespace talweg::train
