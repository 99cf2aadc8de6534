// What a training step takes by every strategy, what limits it, and what would change that. `talweg predict`
// shows it as text, JSON and a page.
//
//   const StepStudy found = study_step(question);           // predict_request.h
//   found.rows[found.best].prediction.step;                 // seconds
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "study/predict_request.h"
#include "train/strategies.h"

namespace talweg::study {

// Gradients that travel together: of what the steady state repeats, by the clock of one step.
struct Bucket {
  std::vector<int> layers;
  double bytes = 0;  // as they are sent
  double ready = 0;  // seconds from the beginning of the step whose gradients they are
  double sent = 0;   // the first byte of it
  double arrived = 0;
};

struct StepRow {
  train::Strategy strategy;
  std::string unsuited;            // why the job cannot follow it; empty: it can
  std::vector<double> steps;       // seconds, by StepQuestion::ranks
  train::Prediction prediction;    // for the largest number of ranks
  std::vector<Bucket> buckets;     // in the order of the backward pass
  std::optional<double> off_by{};  // predicted over measured, less 1; where that can be compared
  bool suits() const { return unsuited.empty(); }
};

// Steps against something that is changed.
struct StepCurves {
  std::vector<double> x;
  std::vector<std::vector<double>> steps;  // seconds; by row of the study, empty for what does not suit
  std::vector<double> alone;               // without any transfer
};

struct WhatIf {
  std::string words;    // "twice the bandwidth"
  double step = 0;      // seconds, by the strategy that is best as things are
  double speed_up = 0;  // samples a second over those of now, all ranks together; NaN: no step takes time
};

struct StepStudy {
  double alone = 0;                     // seconds: one rank's step, that sends nothing
  std::vector<StepRow> rows;            // the quickest first
  std::size_t best = 0;                 // the least step
  std::optional<std::size_t> baseline;  // what PyTorch does, if it is among them
  // The best of those that DistributedDataParallel runs; if there is none, of those whose order it can keep.
  std::optional<std::size_t> plan;
  std::optional<double> measured;  // seconds, of the job's own ranks
  std::optional<double> replayed;  // the same, predicted from what the job recorded of its network
  std::vector<WhatIf> what_ifs;
  // Whether larger transfers take longer; if none does, nothing can be told of bandwidth.
  bool has_rate = true;
  // Times what it is: from there on no more bandwidth gains 1 %; nothing: it always does, or there is no
  // rate.
  std::optional<double> enough_bandwidth;
  std::optional<StepCurves> over_ranks, over_bandwidth;

  const StepRow& best_row() const { return rows[best]; }
};

// `look` is told after each prediction how many of how many are done.
StepStudy study_step(const StepQuestion& question,
                     const std::function<void(std::size_t done, std::size_t all)>& look = {});

// How many times as quick; of two that take no time, 1; NaN where only the latter takes none.
double times_as_quick(double before, double after);

// Whether DistributedDataParallel steps like this once talweg.torch.apply_plan() has told it which gradients
// travel together. Priorities alone do not make it: its optimiser waits for all gradients.
bool runs_under_ddp(const train::Strategy& strategy);
// What apply_plan() reads: {"buckets": [{"layers": ["fc"], "priority": 0}], "partition": null, "credit":
// null}. Sizes are bytes; of the priorities from 0 to 7 the highest goes first, and only strategies with
// priorities have others than 0.
std::string plan_document(const train::Job& job, const StepRow& row);

}  // namespace talweg::study
