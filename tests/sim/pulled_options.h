// Packets that receivers pull, over queues of eight that cut off what does not fit, as NDP has it.
#pragma once

#include "sim/simulation.h"

namespace talweg::sim {

// `window`: packets that a sender may send before it is asked for any. 0: as EQDS has it.
inline SimulationOptions pulled_options(int window = 30) {
  SimulationOptions o;
  o.transport.kind = TransportKind::pulled;
  o.transport.first_window = window;
  o.transport.spray = true;
  o.transport.data_priority = 1;
  QueuePolicy& queue = o.network.switch_queue;
  queue.priorities = o.network.host_queue.priorities = 2;
  queue.limit_bytes = 8 * 1514;
  queue.urgent_limit_bytes = 1 << 20;
  queue.trim = true;
  return o;
}

}  // namespace talweg::sim
