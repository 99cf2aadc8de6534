// What a network does where more is sent than it can take, from what came of it (load_seen.h): whether it
// marks, whether it drops what is Not-ECT first, and in which order it serves priorities.
#pragma once

#include <span>

#include "steer/fabric_check.h"
#include "steer/load_seen.h"

namespace talweg::steer {

// What sums that may lose a part keep in front of a port at most (docs/bounded-loss.md): a queue of this size
// has to have been marked, and twice as much without a mark says that it never will be in time.
inline constexpr double kKeptBytes = 96 << 10;

// Whether all senders sent at about the same time.
bool was_together(const LoadSeen& load);
// Whether the senders sent about what they were to: else their hosts had other things to do.
bool was_sent(const LoadSeen& load);
// Whether a queue was there at all: something was marked or lost, or waited much longer than before.
bool was_full(const LoadSeen& load);
// Whether hosts, not the network, are why a load says nothing: then it is to be done again.
bool was_disturbed(const LoadSeen& load);

// `loads`: into one host, each of another priority. `own_queue`: there is but one sender, so that the queue
// may have been that of its own card: that nothing is done there says nothing of switches.
FabricCheck check_marks(std::span<const LoadSeen> loads, bool own_queue);
FabricCheck check_selective(std::span<const LoadSeen> loads, bool own_queue);
// `priorities`: which are in use, the most urgent first: those above a load's have to overtake it, and those
// below it must not. A priority without a load is not told apart from those below it.
FabricCheck check_priorities(std::span<const LoadSeen> loads, std::span<const int> priorities,
                             bool own_queue);

}  // namespace talweg::steer
