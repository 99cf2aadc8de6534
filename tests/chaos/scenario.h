// Scenario: everything that a seed decides before anything happens: the network, who calls what at what pace,
// and which faults come when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/random_calls.h"
#include "protocol/session/session.h"
#include "sim/simulation.h"

namespace talweg::chaos {

using sim::Picoseconds;

inline constexpr Picoseconds kMillisecond = sim::kPicosecondsPerSecond / 1000;
inline constexpr Picoseconds kSecond = sim::kPicosecondsPerSecond;

enum class FaultKind {
  cut,            // nothing passes from `who` to `whom`, nor back if `both`
  pause,          // the process stands still, its host answers
  crash_process,  // its host closes its connections
  crash_host,     // nobody does
  leave,          // says goodbye
  damage,  // the next frame from a rank of `who` to one of `whom` is changed, and no packet checksum sees it
  abort,
};
const char* name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::pause;
  unsigned who = 0;  // nodes, as bits
  unsigned whom = 0;
  bool both = false;
  // When it comes: at a time, or when so many frames have been handed over, whichever is first.
  Picoseconds when = sim::kNever;
  std::uint64_t after_frames = ~0ULL;
  Picoseconds lasts = 0;  // cut, pause
};

// What all ranks of a group call, in this order. One of Kind::message concerns two of them.
struct ScriptedCall {
  protocol::RandomCall call;
  std::uint64_t number = 0;  // of all calls of the run: makes the values in their buffers differ
  bool message = false;
  int source = 0;  // messages: ranks of the group
  int destination = 0;
  std::uint32_t tag = 0;
  bool any_source = false;
  bool helped = false;   // its trees are rooted at the aggregator
  bool flooded = false;  // no forest carries it
  int odd = -1;          // who disagrees about it
  int impatient = -1;    // who gives it little time, and how much
  Picoseconds patience = 0;
  bool rounds = false;  // sums floats of all magnitudes, of which only the ranks' bits are compared
  int opens = -1;  // a barrier before which the members of this group form it: an index of Scenario::groups
};

struct Group {
  std::vector<int> members;  // ranks of the run
  std::vector<ScriptedCall> calls;
  int closes = -1;     // this group takes the place of that one
  bool later = false;  // does not exist from the start
};

struct Scenario {
  std::uint64_t seed = 0;
  bool all_must_end_well = false;  // nothing happens that a group does not survive
  int ranks = 2;
  int helpers = 0;  // 1: the node behind the ranks is an aggregator, of the first group
  int nodes() const { return ranks + helpers; }
  bool led = false;  // rank 0 plans for the first group, and changes plans while calls are in flight
  int streams = 1;   // of each pair
  std::string shape;
  cluster::Cluster cluster;
  bool mesh = false;
  sim::SimulationOptions simulation;
  std::int64_t send_buffer = 64 << 10;
  std::size_t eager_budget = protocol::kEagerBudget;
  int in_flight = 1;                // operations that a rank has at a time in one group
  Picoseconds pace = 0;             // between two starts of a rank, at most
  std::vector<Picoseconds> begins;  // by rank
  Picoseconds patience = 0;         // of all calls but the impatient ones
  std::vector<Group> groups;        // the first: all ranks
  std::vector<Fault> faults;
  std::vector<ScriptedCall> again;  // what a new group of all ranks calls after everything has healed
};

// Whether a fault of this kind comes; whether a call is such that `which(call)`.
inline bool has(const Scenario& scenario, FaultKind kind) {
  return std::any_of(scenario.faults.begin(), scenario.faults.end(),
                     [&](const Fault& f) { return f.kind == kind; });
}
template <class Which>
bool any_call(const Scenario& scenario, Which which) {
  return std::any_of(scenario.groups.begin(), scenario.groups.end(), [&](const Group& group) {
    return std::any_of(group.calls.begin(), group.calls.end(), which);
  });
}

Scenario scenario_of(std::uint64_t seed);
std::string to_string(const Scenario& scenario);
std::string to_string(const Fault& fault);

}  // namespace talweg::chaos
