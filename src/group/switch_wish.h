// Which switch a group is to have its all_reduces summed by, as options and settings say it.
#pragma once

#include <optional>
#include <string>

#include "live/system.h"
#include "talweg/group.h"
#include "wire/key.h"

namespace talweg::group {

// GroupOptions::algorithm, taken apart: "switch;broadcast:chain" names a switch, and trees for broadcast.
struct NamedAlgorithms {
  std::string trees;        // as PlanChooser takes it
  bool by_switch = false;   // for all_reduce
  bool reduces_by = false;  // trees, for all_reduce
};
NamedAlgorithms take_apart(const std::string& algorithm);

struct SwitchWish {
  bool wanted = false;  // there is one, and no trees are named for all_reduce
  bool always = false;  // whatever it costs
  bool exact = false;   // floats come to the same bits in whatever order they come
  bool sparse = false;  // blocks that are zero do not travel
  live::Endpoint address;
  std::optional<wire::Secret> key;
  std::string from;  // "127.0.0.1:4711 (environment)", for people
};
// Throws Error{invalid_argument} for settings that can never work, Error{system} for a host without address.
SwitchWish find_switch_wish(const GroupOptions& options, const NamedAlgorithms& named);

}  // namespace talweg::group
