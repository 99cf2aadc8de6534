// The end of a sum by switches that is no operation of a group's session: ranks tell each other whether they
// have it, as StreamRun's votes do (protocol/streaming/stream_run.h).
#pragma once

#include <cstdint>
#include <functional>

#include "group/bell.h"
#include "group/group_impl.h"
#include "group/switch_streams.h"

namespace talweg::group {

// Waits until the sum has ended here, and for the others' word. Whether all ranks have it, and it was the
// same one of the job. `bell` rings when the streams change, `looked` is called now and then. Throws Error
// where a rank has gone, and at the deadline.
bool all_have(GroupImpl& group, const SwitchStreams& streams, const protocol::QueuedSum& sum, Bell& bell,
              std::int64_t deadline_ns, int priority, const std::function<void()>& looked);

}  // namespace talweg::group
