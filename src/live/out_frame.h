// A frame on its way to a rank. Its payload is the caller's memory until the frame has been taken.
#pragma once

#include <cstddef>
#include <string>

#include "protocol/outbox.h"
#include "protocol/send_queue.h"
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

using SendQueue = protocol::SendQueue<OutFrame>;

}  // namespace talweg::live
