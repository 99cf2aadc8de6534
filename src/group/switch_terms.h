// How a group's all_reduces go by its switches, for who chooses by that what to send (talweg.torch.hooks).
#pragma once

#include <cstddef>
#include <optional>

#include "group/switch_wish.h"
#include "talweg/group.h"

namespace talweg::group {

struct SwitchTerms {
  // These are the same on all ranks.
  bool always = false;  // all that can be summed goes by them, whatever that costs
  SwitchSparse sparse = SwitchSparse::none;
  double float_bytes = 4;  // of a float32 that travels
  std::size_t block = 0;   // elements that travel together, or not; 0: not known before they have been joined
};
// Empty: no switch sums for the group. Any thread.
std::optional<SwitchTerms> switch_terms(const Group& group);

// By which way an all_reduce was made that a switch could have summed, as a flight record says it: "pairs",
// "blocks" or "dense", the form in which a switch has; "trees" and "fallback". "": it is not done, has
// failed, or was no such call. Any thread.
const char* way_of(const Work& work);

}  // namespace talweg::group
