#include "train/traces/kineto_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.h"
#include "train/traces/kineto_step.h"

namespace talweg::train {
namespace {

// Where nothing marks steps: a step ends with the optimiser's, or where the next forward pass begins.
std::vector<KinetoStep> steps_by_pattern(const KinetoTrace& t, std::string& note) {
  std::vector<KinetoStep> steps;
  const auto close = [&](std::int64_t end) {
    const std::int64_t begin = steps.empty() ? t.first : steps.back().end;
    steps.push_back({static_cast<std::int64_t>(steps.size()), begin, end});
  };
  bool any = false, went_back = false;
  std::int64_t last = 0;
  for (const KinetoOp& op : t.ops)
    if (op.kind == KinetoOp::Kind::optimizer &&
        t.names[static_cast<std::size_t>(op.name)] == "Optimizer.step")
      any = true;
  for (const KinetoOp& op : t.ops) {
    if (any) {
      if (op.kind == KinetoOp::Kind::optimizer &&
          t.names[static_cast<std::size_t>(op.name)] == "Optimizer.step")
        close(op.end);
      continue;
    }
    const bool back = op.kind == KinetoOp::Kind::backward || op.kind == KinetoOp::Kind::accumulate;
    // The end of the last operator before the model is run again.
    if (went_back && op.kind == KinetoOp::Kind::plain && op.sequence >= 0) {
      close(last);
      went_back = false;
    }
    if (back) {
      went_back = true;
      last = std::max(last, op.end);
    }
  }
  if (!any && went_back) close(last);
  note = any ? "no ProfilerStep marks: steps are taken from one step of the optimiser to the next"
             : "no ProfilerStep marks and no optimiser: steps are taken from one backward pass to the next";
  return steps;
}

struct Alike {
  StepSeen first;
  std::vector<StepTimes> steps;
};

}  // namespace

RankSteps steps_of(const KinetoTrace& trace) {
  RankSteps result;
  std::vector<KinetoStep> found = trace.steps;
  if (found.empty()) {
    std::string note;
    found = steps_by_pattern(trace, note);
    result.notes.push_back(std::move(note));
  }
  std::vector<Alike> groups;
  std::size_t whole = 0;
  for (const KinetoStep& step : found) {
    auto seen = see_step(trace, step);
    if (!seen) continue;
    ++whole;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Alike& a) { return a.first.shape == seen->shape; });
    if (same != groups.end()) {
      same->steps.push_back(std::move(seen->times));
    } else {
      StepTimes times = seen->times;
      groups.push_back({std::move(*seen), {std::move(times)}});
    }
  }
  if (groups.empty())
    throw_error(
        ErrorCode::bad_file,
        "{}: expected a whole step of training: a forward pass and the backward pass through it (operators "
        "with equal sequence numbers)",
        trace.path);
  // Of two that are as frequent: the later one, as the first steps are still settling.
  const auto most = std::max_element(groups.begin(), groups.end(), [](const Alike& a, const Alike& b) {
    return a.steps.size() != b.steps.size() ? a.steps.size() < b.steps.size()
                                            : a.steps.back().number < b.steps.back().number;
  });
  for (const Alike& other : groups)
    if (other.first.shape.layers != most->first.shape.layers && other.steps.size() > 1)
      throw_error(ErrorCode::bad_file,
                  "{}: expected one model, but steps {} and {} are of two: {} layers and {} layers",
                  trace.path, other.steps.front().number, most->steps.front().number,
                  other.first.shape.layers.size(), most->first.shape.layers.size());
  if (most->steps.size() < whole)
    result.notes.push_back(
        fmt::format("{} of {} steps are alike; the others are left out", most->steps.size(), whole));
  const StepSeen& seen = most->first;
  if (!seen.sizes_known)
    result.notes.push_back(
        "parameters' sizes are not in the trace (record_shapes=True): each transfer counts to the layer "
        "that completes it");
  if (!seen.buckets_matched)
    result.notes.push_back(
        "parameters in the order in which they are ready do not add up to what was sent: which layers "
        "a transfer carried is taken from when it was called");
  if (seen.without_gradients > 0)
    result.notes.push_back(fmt::format(
        "{} of {} transfers of a step carried no gradients: parameters in the order in which they are ready "
        "make up the others",
        seen.without_gradients, seen.shape.transfers.size()));
  if (!seen.bytes_known) result.notes.push_back("sizes of transfers are not in the trace: they are 0");
  if (trace.runs.empty() && !seen.shape.transfers.empty())
    result.notes.push_back("how long transfers took is not in the trace: their times are 0");
  result.shape = seen.shape;
  result.caps = seen.caps;
  result.steps = std::move(most->steps);
  return result;
}

}  // namespace talweg::train
