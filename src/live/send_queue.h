// What waits to be sent to one rank. More urgent frames go first; equals in order. A frame's payload is the
// caller's memory until the frame has been taken.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "base/ring_queue.h"
#include "protocol/outbox.h"
#include "wire/frame.h"

namespace talweg::live {

struct OutFrame {
  wire::Header header;
  const std::byte* payload = nullptr;
  std::string text;  // owned payload of a control frame, or what was rescued of a cancelled one
  protocol::Token token;
  int priority = 0;
  bool stable = false;
  bool reported = true;  // nobody waits for on_sent

  const std::byte* bytes() const {
    return text.empty() ? payload : reinterpret_cast<const std::byte*>(text.data());
  }
};

class SendQueue {
 public:
  void push(OutFrame frame);
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // The most urgent one.
  OutFrame& front() { return level().front(); }
  OutFrame pop();
  // Removes what belongs to a run; calls `dropped` for every frame that somebody waits for.
  template <class Function>
  void cancel(std::uint32_t group, std::uint64_t run, Function&& dropped) {
    for (auto& queue : levels_) {
      const std::size_t n = queue.size();
      for (std::size_t i = 0; i < n; ++i) {
        OutFrame frame = queue.pop();
        if (!frame.reported && frame.header.group == group && frame.token.run == run) {
          --size_;
          dropped(frame);
        } else {
          queue.push(std::move(frame));
        }
      }
    }
  }

 private:
  RingQueue<OutFrame>& level();
  std::array<RingQueue<OutFrame>, protocol::kPriorities> levels_;
  std::size_t size_ = 0;
};

}  // namespace talweg::live
