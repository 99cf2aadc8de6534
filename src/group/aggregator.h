// Aggregator: a process that is none of a group's ranks and sums for them. It is a node of the network by its
// name there, joins over the same links as a rank, holds no data, and takes its part in an operation when it
// first hears of it.
//
//   serve_group({.name = "agg0"});          // at the rendezvous that the environment names, as for ranks
//
// Its group plans trees through it if it is there when the group forms. Rank 0 sends it each plan that it has
// a part in; calls name theirs by its digest. Groups split from that group plan without it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace talweg::group {

struct AggregatorOptions {
  std::string name;        // of the node in the ranks' cluster file
  std::string rendezvous;  // these three as in GroupOptions
  std::string prefix;
  std::string interface;
  std::chrono::milliseconds timeout{0};  // for a group to form
};

// Joins a group, and returns when the last of its ranks has left: its number. Throws Error as Group::join.
std::uint64_t serve_group(const AggregatorOptions& options);

}  // namespace talweg::group
