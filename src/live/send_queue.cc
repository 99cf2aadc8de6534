#include "live/send_queue.h"

#include <algorithm>

namespace talweg::live {

void SendQueue::push(OutFrame frame) {
  const int priority = std::clamp(frame.priority, 0, protocol::kUrgent);
  levels_[static_cast<std::size_t>(priority)].push(std::move(frame));
  ++size_;
}

RingQueue<OutFrame>& SendQueue::level() {
  std::size_t i = protocol::kUrgent;
  while (levels_[i].empty()) --i;
  return levels_[i];
}

OutFrame SendQueue::pop() {
  --size_;
  return level().pop();
}

}  // namespace talweg::live
