#include "wire/flow_packets.h"

#include <cstring>

namespace talweg::wire {

namespace {

struct AckLayout {
  std::uint64_t highest;
  std::uint32_t held_us;
  std::uint32_t window;
  std::uint32_t marked;
  std::uint16_t n_ranges;
  std::uint16_t n_limits;
};
static_assert(sizeof(AckLayout) == 24);

// Of each range: how many numbers are missing above it, and how many it has. Above the first: none.
struct RangeLayout {
  std::uint64_t missing;
  std::uint64_t numbers;
};
static_assert(sizeof(RangeLayout) == 16);

}  // namespace

std::size_t encode(const Acknowledgement& ack, std::byte* payload) {
  const AckLayout layout{ack.highest(),
                         ack.held_us,
                         ack.window,
                         ack.marked,
                         static_cast<std::uint16_t>(ack.n_ranges),
                         static_cast<std::uint16_t>(ack.n_limits)};
  std::byte* at = payload;
  std::memcpy(at, &layout, sizeof layout);
  at += sizeof layout;
  std::uint64_t above = ack.ranges[0].end;
  for (std::size_t i = 0; i < ack.n_ranges; ++i) {
    const RangeLayout range{above - ack.ranges[i].end, ack.ranges[i].end - ack.ranges[i].begin};
    std::memcpy(at, &range, sizeof range);
    at += sizeof range;
    above = ack.ranges[i].begin;
  }
  std::memcpy(at, ack.limits.data(), ack.n_limits * sizeof ack.limits[0]);
  at += ack.n_limits * sizeof ack.limits[0];
  return static_cast<std::size_t>(at - payload);
}

const char* decode(std::span<const std::byte> payload, Acknowledgement& ack) {
  AckLayout layout;
  if (payload.size() < sizeof layout) return "an acknowledgement shorter than its fixed part";
  std::memcpy(&layout, payload.data(), sizeof layout);
  if (layout.n_ranges == 0 || layout.n_ranges > kAckRanges)
    return "an acknowledgement of no or too many ranges";
  if (layout.n_limits > kFlowChannels) return "an acknowledgement of too many channels";
  if (payload.size() !=
      sizeof layout + layout.n_ranges * sizeof(RangeLayout) + layout.n_limits * sizeof(std::uint64_t))
    return "an acknowledgement of another length than it says";
  if (layout.highest >= kFlowBytes) return "an acknowledgement of a number that nobody can have sent";
  const std::byte* at = payload.data() + sizeof layout;
  std::uint64_t above = layout.highest + 1;
  for (std::size_t i = 0; i < layout.n_ranges; ++i) {
    RangeLayout range;
    std::memcpy(&range, at, sizeof range);
    at += sizeof range;
    if ((range.missing == 0) != (i == 0)) return "an acknowledgement whose ranges touch";
    if (range.missing > above || range.numbers == 0 || range.numbers > above - range.missing)
      return "an acknowledgement of numbers below zero";
    ack.ranges[i] = {above - range.missing - range.numbers, above - range.missing};
    above = ack.ranges[i].begin;
  }
  std::memcpy(ack.limits.data(), at, layout.n_limits * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < layout.n_limits; ++i)
    if (ack.limits[i] > kFlowBytes) return "an acknowledgement with a limit beyond a channel's end";
  ack.held_us = layout.held_us;
  ack.window = layout.window;
  ack.marked = layout.marked;
  ack.n_ranges = layout.n_ranges;
  ack.n_limits = layout.n_limits;
  return nullptr;
}

}  // namespace talweg::wire
