// Which call made which transfer: calls stand on the threads that compute, transfers on threads or streams of
// their own, where they may overtake one another.
#pragma once

#include <cstddef>
#include <vector>

#include "train/traces/kineto_trace.h"

namespace talweg::train {

// Says of each run when it was called, and what its size is where only the call says that; orders calls by
// their begins and runs by their calls. A call belongs to a run by the ids of calls, where the trace has them
// (it does when an execution trace is recorded, too); else by where the kernel was launched; else it is the
// first of that collective and size that no run before has.
// `recorded` are what record_param_comms says of the same calls. Returns how many calls it looked at where
// neither ids nor launches say whose they are: a few for each run.
std::size_t pair_transfers(std::vector<KinetoTransfer>& calls, std::vector<KinetoTransfer> recorded,
                           std::vector<KinetoTransfer>& runs);

}  // namespace talweg::train
