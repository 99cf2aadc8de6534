// What a world of bounded-loss transfers consists of; for its own sources.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/bounded/world.h"

namespace talweg::protocol {

struct BoundedWorld::Node {
  std::size_t number = 0;
  std::uint16_t id = 0;
  std::unique_ptr<BoundedSender> sender;
  std::unique_ptr<wire::DatagramSealer> up_seal, down_seal;
  std::unique_ptr<wire::DatagramOpener> up_open, down_open;
  std::vector<std::size_t> streams;
  std::int64_t pace_ns = 0, tick_ns = 0;
  std::uint64_t newest_up = 0;
  std::uint64_t lost_bytes = 0;  // in all iterations
  std::uint64_t bytes = 0;       // in one
  bool dead = false;
};

struct BoundedWorld::Stream {
  std::size_t number = 0;     // here, and at the receiver
  std::size_t at_sender = 0;  // there
  Node* node = nullptr;
  BoundedShape shape;
  std::vector<std::vector<std::byte>> inputs;  // by iteration
  std::vector<std::byte> out;
  TransferClasses classes;
  bool classified = false;  // anew in each iteration
  PacketSet important;
  std::uint32_t iteration = 0;              // that its sender is in
  bool idle = true;                         // there
  bool ended = true;                        // at the receiver, of its iteration
  std::map<std::uint32_t, unsigned> named;  // how often its sender was told of a hole and has not sent it
  bool stopped = false;                     // a stop has
  std::vector<std::optional<PacketSet>> missing;  // as the receiver has ended each iteration
  std::uint64_t sent_once = 0;
  bool waited = false;  // its sender was late
};

}  // namespace talweg::protocol
