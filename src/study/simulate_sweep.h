// Sweeps: one simulation for each combination of some fields' values, on all cores, and, where a launcher or
// a job array started several of us, spread over those. What each point gave is kept in a file of its own, so
// that a sweep that was cut off goes on where it was, and whoever finishes last puts all into one table.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/simulate_request.h"

namespace talweg::study {

struct SweepRequest {
  SimulateRequest base;             // what all points have in common
  std::vector<std::string> sweeps;  // "loss=0,0.01"; values that hold commas are parted by ";"
  std::string folder;               // of the points' files; "": a temporary one
  int jobs = 0;                     // simulations at once; 0: as many as there are cores
};

// The values of one point, by field.
using SweepPoint = std::vector<std::pair<std::string, std::string>>;
// All combinations, the last field changing fastest. Sizes may be ranges, in steps of `factor`, and the
// algorithm "all": each planner, even where it does not serve. Throws Error{invalid_argument}.
std::vector<SweepPoint> sweep_points(const std::vector<std::string>& sweeps, int factor);

// Which of several processes we are: mpirun, torchrun, Slurm, a Slurm job array; 0 of 1 else.
struct SweepShare {
  int index = 0;
  int count = 1;
};
SweepShare find_share();

struct SweepResult {
  std::vector<std::vector<std::string>> rows;  // the head, and a row for each point
  nlohmann::json points;
  bool failed = false;      // of some point
  std::size_t options = 0;  // so many columns, from the left, are what the options were
};
// A table; where there is no room, what the queues and links did is left out; `wide`: all columns.
std::string to_text(const SweepResult& result, bool wide);
// Our share of the runs. Nothing where others are not done, or speak for all.
std::optional<SweepResult> run_sweep(const SweepRequest& request);

}  // namespace talweg::study
