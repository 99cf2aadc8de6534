// What launchers tell a process: rank, size, where to meet. Understood are talweg run, torchrun, Open MPI,
// MPICH and Slurm.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "talweg/group.h"

namespace talweg::group {

struct Place {
  int rank = 0;
  int size = 1;
  std::string origin;  // "RANK and WORLD_SIZE", "option", "alone: no launcher"
};

// Options first, then the environment. Throws Error{invalid_argument} for a rank outside 0 .. size-1, or for
// a variable that is not a number.
Place find_place(const GroupOptions& options);

// Where `host:port` of rank 0's store is, when no store was given.
struct Meeting {
  std::string file;  // a file store, else:
  std::string host;
  int port = 0;
  std::string origin;
};
// The option first; for an aggregator, who has no rank, then TALWEG_AGGREGATORS_AT. Throws
// Error{invalid_argument} that says which variables were looked for.
Meeting find_meeting(const Place& place, const std::string& rendezvous = {});
// Where TALWEG_AGGREGATORS_AT says that aggregators look, if it is set.
std::optional<Meeting> find_aggregator_meeting();

// "30s" or a number of seconds; the option first. At least 1 ms.
std::chrono::milliseconds find_timeout(const GroupOptions& options);

}  // namespace talweg::group
