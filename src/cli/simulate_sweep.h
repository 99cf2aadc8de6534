// Sweeps: one simulation for each combination of some options' values, on all cores, and, where a launcher or
// a job array started several of us, spread over those. What each point gave is kept in a file of its own, so
// that a sweep that was cut off goes on where it was, and whoever finishes last puts all into one table.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace talweg::cli {

struct SweepOptions {
  std::vector<std::string> sweeps;  // "loss=0,0.01"; values that hold commas are parted by ";"
  std::string folder;               // of the points' files; "": a temporary one
  int jobs = 0;                     // simulations at once; 0: as many as there are cores
  std::string json, csv;            // files for the table; "-": standard output
};

// The values of one point, by option.
using SweepPoint = std::vector<std::pair<std::string, std::string>>;
// All combinations, the last option changing fastest. Sizes may be ranges, in steps of `factor`, and the
// algorithm "all": each planner, even where it does not serve. Throws Error{invalid_argument}.
std::vector<SweepPoint> sweep_points(const std::vector<std::string>& sweeps, int factor);

// Which of several processes we are: mpirun, torchrun, Slurm, a Slurm job array; 0 of 1 else.
struct SweepShare {
  int index = 0;
  int count = 1;
};
SweepShare find_share();

// `sub` is the parsed command line of the sweep itself. Returns the exit code.
int run_sweep(const CLI::App& sub, const SweepOptions& options);

}  // namespace talweg::cli
