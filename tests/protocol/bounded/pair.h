// One sender and one receiver of bounded-loss transfers, with hand-made packets between them.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"

namespace talweg::protocol {

struct SentMessage {
  wire::DatagramHeader header;
  std::vector<std::byte> payload;

  wire::BoundedData data() const {
    wire::BoundedData d;
    const char* const why = decode(header, payload, d);
    return why == nullptr ? d : wire::BoundedData{};
  }
  bool is(wire::BoundedType type) const { return header.type == static_cast<std::uint8_t>(type); }
  // Of holes or a stop: the packets that are named.
  std::vector<std::uint32_t> named() const {
    wire::BoundedReport r;
    std::vector<std::uint32_t> packets;
    if (decode(header, payload, r) == nullptr && !r.bits.empty())
      for (std::uint32_t i = 0; i < r.window(); ++i)
        if (r.is_missing(i)) packets.push_back(r.first + i);
    return packets;
  }
};

inline constexpr std::int64_t kMs = 1'000'000;

struct BoundedPair {
  static constexpr std::uint16_t kFrom = 3, kTo = 9;

  explicit BoundedPair(const LossBounds& bounds, const BoundedShape& cut = {1, 100 * 40, 40},
                       BoundedTimes t = {200'000, 1'000'000, {10 * kMs, 200'000, 40 * kMs}},
                       LossFill fill = LossFill::zero)
      : shape(cut), sender(kFrom, kTo, t), receiver(bounds, t, fill) {
    sender.add(shape);
    receiver.add(kFrom, shape);
    in.resize(shape.bytes);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(1 + i % 251);
    out.assign(shape.bytes, std::byte{0x77});
  }
  void expect(std::uint32_t iteration, std::int64_t deadline_ns = 10'000 * kMs) {
    receiver.begin(iteration);
    receiver.expect(0, out.data(), deadline_ns, now);
  }
  void begin(std::uint32_t iteration, const TransferClasses& classes = {},
             std::int64_t deadline_ns = 10'000 * kMs) {
    sender.begin(0, iteration, in.data(), classes, deadline_ns, now);
  }
  std::optional<SentMessage> next_up() {
    SentMessage m;
    m.payload.resize(2048);
    if (!sender.next(now, m.header, m.payload.data())) return std::nullopt;
    m.payload.resize(m.header.length);
    m.header.sender = kFrom;
    return m;
  }
  std::vector<SentMessage> all_up() {
    std::vector<SentMessage> all;
    constexpr std::size_t kMost = 20'000;  // a sender that finds no end is noticed by how many there are
    for (auto m = next_up(); m && all.size() < kMost; m = next_up()) all.push_back(std::move(*m));
    return all;
  }
  std::vector<SentMessage> all_down() {
    std::vector<SentMessage> all;
    SentMessage m;
    std::uint16_t to = 0;
    m.payload.resize(wire::kMostReportBytes);
    constexpr std::size_t kMost = 1000;
    while (all.size() < kMost && receiver.next(now, to, m.header, m.payload.data())) {
      all.push_back(m);
      all.back().payload.resize(m.header.length);
      all.back().header.sender = kTo;
    }
    return all;
  }
  void up(const SentMessage& m) { receiver.on(m.header, m.payload, now); }
  void down(const SentMessage& m) { sender.on(m.header, m.payload, now); }
  void pass(std::int64_t ns) {
    now += ns;
    receiver.on_time(now);
    sender.on_time(now);
  }
  const BoundedInflow& inflow() const { return receiver.stream(0); }
  const BoundedOutflow& outflow() const { return sender.stream(0); }

  BoundedShape shape;
  BoundedSender sender;
  BoundedReceiver receiver;
  std::vector<std::byte> in, out;
  std::int64_t now = kMs;
};

// Loses the packets of which `lost` says so in the first pass, and nothing after that.
inline void run_first_pass(BoundedPair& pair, std::uint32_t iteration, const std::vector<std::uint32_t>& lost,
                           const TransferClasses& classes = {}) {
  pair.expect(iteration);
  pair.begin(iteration, classes);
  for (const auto& m : pair.all_up())
    if (std::ranges::find(lost, m.data().packet) == lost.end()) pair.up(m);
}

}  // namespace talweg::protocol
