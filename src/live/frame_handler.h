// Who gets what arrives. All calls come from the thread that polls the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "protocol/outbox.h"
#include "wire/frame_reader.h"

namespace talweg::live {

using wire::Place;

class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  virtual Place place(int peer, const wire::Header& header) = 0;
  // `payload` is valid during the call.
  virtual void on_frame(int peer, const wire::Header& header, const std::byte* payload) = 0;
  virtual void on_sent(std::uint32_t group, const protocol::Token& token) = 0;
  // `failure` is empty when it said goodbye first.
  virtual void on_peer_gone(int peer, std::optional<ErrorCode> failure, const std::string& why) = 0;
};

}  // namespace talweg::live
