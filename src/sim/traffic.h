// Patterns of flows among all hosts of a network, written as one word, for command lines: a kind and its
// numbers. What is left out is as shown.
//
//   permutation:size=1MB,seed=1             each host to one other and from one other, drawn at random
//   permutation:size=1MB,shift=4            host i to host i + 4, all around
//   shuffle:size=1MB                        each host to each other one
//   incast:size=1MB,to=15,from=15           to one host (the last) from the first so many others (all)
//   mixed:size=1MB,flows=4,within=1ms,seed=1  of each host so many flows to hosts drawn at random, starting
//                                           within that time; of ten six have size / 100, three size / 10
//
// All take prio=0 (0 is the most urgent) and start=0s; a seed that is not written is the run's own.
#pragma once

#include <cstdint>
#include <string>

#include "sim/matrix_file.h"

namespace talweg::sim {

// Flows are numbered from 1. Throws Error{invalid_argument} that says what was expected.
Matrix parse_traffic(const std::string& text, int hosts, std::uint64_t seed);

}  // namespace talweg::sim
