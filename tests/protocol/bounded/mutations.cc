// How a world of bounded-loss transfers is broken on purpose.
#include <algorithm>

#include "protocol/bounded/world_parts.h"

namespace talweg::protocol {

namespace {

void write_data(wire::BoundedData d, wire::DatagramHeader& header, std::vector<std::byte>& payload) {
  const std::vector<std::byte> bytes(payload.begin() + wire::kBoundedHeadBytes, payload.end());
  payload.resize(wire::kBoundedHeadBytes + d.length());
  wire::encode(d, header.own32, header, payload.data());
  for (std::size_t i = 0; i < d.length(); ++i)
    payload[wire::kBoundedHeadBytes + i] = i < bytes.size() ? bytes[i] : std::byte{1};
}

void write_report(wire::BoundedReport r, std::vector<std::byte> bits, wire::DatagramHeader& header,
                  std::vector<std::byte>& payload) {
  r.bits = bits;
  payload.resize(wire::kReportHeadBytes + bits.size());
  wire::encode(r, header.own32, header, payload.data());
}

}  // namespace

// False: it does not arrive.
bool BoundedWorld::mutate(Node& node, bool up, Message& m) {
  using enum BoundedMutation;
  const bool sometimes = random_.below(5) == 0;
  if (up) {
    wire::BoundedData d;
    if (decode(m.header, m.payload, d) != nullptr) {
      wire::BoundedProbe probe;
      if (mutation_ == false_must && decode(m.header, m.payload, probe) == nullptr) {
        probe.must = 0;
        wire::encode(probe, m.header.own32, m.header, m.payload.data());
      }
      return true;
    }
    if (mutation_ == forget_iterations) m.header.own32 = iteration(std::min(at_, iterations_ - 1));
    if (mutation_ == damage_data && sometimes) m.payload.back() ^= std::byte{4};
    if (mutation_ == move_packets && sometimes && d.packets > 1) {
      d.packet = (d.packet + 1) % d.packets;
      write_data(d, m.header, m.payload);
    }
    if (mutation_ == false_must) {
      if (d.is_must && !d.again && sometimes) return false;
      d.is_must = false;
      d.must = 0;
      write_data(d, m.header, m.payload);
    }
    if (mutation_ == swap_senders && sometimes)
      for (const auto& s : streams_)
        if (s->node != &node && s->shape.tensor == d.tensor && s->shape.packets() == d.packets &&
            s->shape.stride == d.stride && s->shape.tail() == d.tail)
          m.header.sender = s->node->id;
    return true;
  }
  if (mutation_ == deaf_senders) return false;
  wire::BoundedReport r;
  if (decode(m.header, m.payload, r) != nullptr) return true;
  std::vector<std::byte> bits(r.bits.begin(), r.bits.end());
  if (mutation_ == early_stops && r.type == wire::BoundedType::holes) {
    r.type = wire::BoundedType::stop;
    write_report(r, bits, m.header, m.payload);
  }
  if (mutation_ == hidden_losses && r.type == wire::BoundedType::stop && r.missing > 0) {
    r.missing = r.first = 0;
    write_report(r, {}, m.header, m.payload);
  }
  if (mutation_ == wrong_holes && r.type == wire::BoundedType::holes && r.window() > 1) {
    // Each bit a packet further on.
    std::vector<std::byte> moved(bits.size(), std::byte{0});
    for (std::uint32_t i = 0; i < r.window(); ++i) {
      const std::uint32_t to = (i + 1) % r.window();
      if (r.is_missing(i)) moved[to / 8] |= std::byte{1} << (to % 8);
    }
    write_report(r, moved, m.header, m.payload);
  }
  return true;
}

}  // namespace talweg::protocol
