// Which call made which transfer: calls stand on the threads that compute, transfers on threads or streams of
// their own, where they may overtake one another.
#pragma once

#include <cstddef>
#include <deque>
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

// Gloo's transfers for a device are run by the host, whose threads wait in them for the device: a call queues
// copies to the host's memory, what runs queues copies back. A run that has such copies begins no earlier
// than the first of them and ends no earlier than the last; they are taken out of the kernels. A run that
// begins within a call on its own thread has none: that thread's copies may be anybody's. After
// pair_transfers().
void take_copies(const std::vector<KinetoTransfer>& calls, std::vector<KinetoTransfer>& runs,
                 std::deque<KinetoKernel>& kernels);

}  // namespace talweg::train
