// Whether the network between the hosts of a group does what Talweg's traffic classes ask of its switches:
// what `talweg fabric` measures. The verdicts are steer/class_checks.h's and steer/load_checks.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "group/group_impl.h"
#include "steer/fabric_check.h"
#include "steer/load_seen.h"

namespace talweg::study {

struct FabricOptions {
  bool all_pairs = false;  // else a ring, and at most 8 hosts whose links are filled
  bool load = true;        // fill links, too
  int queues = 4;          // of layers, as PacketClasses has it: which priorities are in use. 1 .. 7
  std::function<void(const std::string&)> progress;  // called on rank 0: a line for people
};

struct FabricResult {
  std::vector<std::string> host_names;
  std::vector<steer::FabricCheck> checks;  // in the order of steer::kFabricChecks
  std::vector<steer::LoadSeen> loads;
  double seconds = 0;
  std::int64_t bytes = 0;  // of datagrams that were sent
};

// Every rank of the group calls it, with nothing else in flight; one rank of each host does the work. What it
// returns is whole on rank 0 alone. Throws what the group throws, and Error{system} for a socket that cannot
// be had.
FabricResult study_fabric(group::GroupImpl& group, const FabricOptions& options);

// "h0 -> h1", "into h1" or "h1": what a check is about, as people may read it.
std::string place_of(const steer::FabricCheck& check, const std::vector<std::string>& host_names);

// "marks,dscp" -> the names, of steer::kFabricChecks. Throws Error{invalid_argument} for others, or for none.
std::vector<std::string> parse_expected(const std::string& text);

// What was expected and is not there, a line each: whatever did not pass, and what was not looked at.
std::vector<std::string> unmet(const FabricResult& result, const std::vector<std::string>& expected);

}  // namespace talweg::study
