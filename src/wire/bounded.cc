#include "wire/bounded.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace talweg::wire {

namespace {

struct DataHeadLayout {
  std::uint32_t tensor;
  std::uint32_t packet;
  std::uint32_t packets;
  std::uint32_t must;
  std::uint16_t stride;
  std::uint16_t tail;
  std::uint8_t flags;
  std::uint8_t spare[3];
};
static_assert(sizeof(DataHeadLayout) == kBoundedHeadBytes);

struct ProbeLayout {
  std::uint32_t tensor;
  std::uint32_t probe;
  std::uint32_t packets;
  std::uint32_t must;
};
static_assert(sizeof(ProbeLayout) == kProbeBytes);

struct ReportLayout {
  std::uint32_t tensor;
  std::uint32_t round;
  std::uint32_t probe;
  std::uint32_t packets;
  std::uint32_t first;
  std::uint32_t missing;
  std::uint8_t end;
  std::uint8_t spare[3];
};
static_assert(sizeof(ReportLayout) == kReportHeadBytes);

constexpr std::uint8_t kLastFlag = 1, kAgainFlag = 2, kMustFlag = 4;

void fill_in(DatagramHeader& header, BoundedType type, std::uint32_t iteration, std::size_t length) {
  header.type = static_cast<std::uint8_t>(type);
  header.own16 = 0;
  header.own32 = iteration;
  header.length = static_cast<std::uint16_t>(length);
}

bool is_of(const DatagramHeader& header, BoundedType type) {
  return header.type == static_cast<std::uint8_t>(type);
}

bool any(const std::uint8_t (&spare)[3]) {
  return (spare[0] | spare[1] | spare[2]) != 0;
}

const char* check_control(const DatagramHeader& header, std::uint32_t packets) {
  if (header.own16 != 0) return "a second number, which control has not";
  if (header.service != kControlClass) return "control of another class than its own";
  if (packets == 0) return "control about no packets";
  return nullptr;
}

// Bits of packets behind the window's last one must be 0, and there is a hole or nobody would have spoken.
const char* check_bits(const BoundedReport& r) {
  std::uint32_t set = 0;
  for (const std::byte b : r.bits)
    set += static_cast<std::uint32_t>(std::popcount(std::to_integer<std::uint8_t>(b)));
  if (r.window() % 8 != 0 && (r.bits.back() >> (r.window() % 8)) != std::byte{0})
    return "holes behind the last packet";
  if (set == 0) return "a window without a hole";
  if (set > r.missing) return "more holes in one window than in all";
  return nullptr;
}

}  // namespace

std::size_t encode(const BoundedData& d, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload) {
  const auto flags = static_cast<std::uint8_t>((d.last ? kLastFlag : 0) | (d.again ? kAgainFlag : 0) |
                                               (d.is_must ? kMustFlag : 0));
  const DataHeadLayout layout{d.tensor, d.packet, d.packets, d.must, d.stride, d.tail, flags, {}};
  std::memcpy(payload, &layout, sizeof layout);
  fill_in(header, BoundedType::data, iteration, sizeof layout + d.length());
  return header.length;
}

std::size_t encode(const BoundedProbe& p, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload) {
  const ProbeLayout layout{p.tensor, p.probe, p.packets, p.must};
  std::memcpy(payload, &layout, sizeof layout);
  fill_in(header, BoundedType::probe, iteration, sizeof layout);
  header.service = kControlClass;
  return header.length;
}

std::size_t encode(const BoundedReport& r, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload) {
  const ReportLayout layout{
      r.tensor, r.round, r.probe, r.packets, r.first, r.missing, static_cast<std::uint8_t>(r.end), {}};
  std::memcpy(payload, &layout, sizeof layout);
  if (!r.bits.empty()) std::memcpy(payload + sizeof layout, r.bits.data(), r.bits.size());
  fill_in(header, r.type, iteration, sizeof layout + r.bits.size());
  header.service = kControlClass;
  return header.length;
}

std::size_t encode(const BoundedTrial& t, DatagramHeader& header, std::byte* payload) {
  std::memset(payload, 0, t.bytes);
  fill_in(header, BoundedType::trial, 0, t.bytes);
  header.own16 = t.largest ? 1 : 0;
  return header.length;
}

const char* decode(const DatagramHeader& header, std::span<const std::byte> payload, BoundedData& data) {
  if (!is_of(header, BoundedType::data)) return "no data of a bounded transfer";
  if (header.own16 != 0) return "a second number, which data have not";
  DataHeadLayout e;
  if (payload.size() < sizeof e) return "data shorter than their head";
  std::memcpy(&e, payload.data(), sizeof e);
  if ((e.flags & ~(kLastFlag | kAgainFlag | kMustFlag)) != 0 || any(e.spare))
    return "data with unknown flags";
  if (e.packet >= e.packets) return "a packet behind the last one";
  if (e.stride == 0 || e.tail == 0 || e.tail > e.stride) return "packets of an impossible length";
  if (e.must > e.packets) return "more packets that must arrive than there are packets";
  BoundedData d;
  d.tensor = e.tensor;
  d.packet = e.packet;
  d.packets = e.packets;
  d.must = e.must;
  d.stride = e.stride;
  d.tail = e.tail;
  d.last = (e.flags & kLastFlag) != 0;
  d.again = (e.flags & kAgainFlag) != 0;
  d.is_must = (e.flags & kMustFlag) != 0;
  if (d.is_must && d.must == 0) return "a packet that must arrive where none must";
  if ((d.is_must || d.again) && (header.service & kDroppable) != 0)
    return "a packet that is needed and may be dropped";
  if (payload.size() - sizeof e != d.length()) return "data of another length than they say";
  data = d;
  return nullptr;
}

const char* decode(const DatagramHeader& header, std::span<const std::byte> payload, BoundedProbe& probe) {
  if (!is_of(header, BoundedType::probe)) return "no probe of a bounded transfer";
  ProbeLayout e;
  if (payload.size() != sizeof e) return "not as long as a probe";
  std::memcpy(&e, payload.data(), sizeof e);
  if (const char* const why = check_control(header, e.packets)) return why;
  if (e.probe == 0) return "a probe without a number";
  if (e.must > e.packets) return "more packets that must arrive than there are packets";
  probe = {e.tensor, e.probe, e.packets, e.must};
  return nullptr;
}

const char* decode(const DatagramHeader& header, std::span<const std::byte> payload, BoundedReport& report) {
  if (!is_of(header, BoundedType::holes) && !is_of(header, BoundedType::stop))
    return "no report of a bounded transfer";
  ReportLayout e;
  if (payload.size() < sizeof e) return "a report shorter than its head";
  std::memcpy(&e, payload.data(), sizeof e);
  if (const char* const why = check_control(header, e.packets)) return why;
  if (e.end >= kBoundedEnds || any(e.spare)) return "a report of an unknown end";
  BoundedReport r{static_cast<BoundedType>(header.type),
                  e.tensor,
                  e.round,
                  e.probe,
                  e.packets,
                  e.first,
                  e.missing,
                  static_cast<BoundedEnd>(e.end),
                  payload.subspan(sizeof e)};
  if (r.missing > r.packets) return "more packets missing than there are";
  if (r.type == BoundedType::holes) {
    if (r.end != BoundedEnd::delivered) return "holes of a transfer that has ended";
    if (r.round == 0) return "holes without a round";
    if (r.missing == 0) return "holes where nothing is missing";
  }
  if (r.first >= r.packets || r.first % kHoleWindow != 0) return "a window that begins where none does";
  const bool tells = r.end == BoundedEnd::delivered && r.missing > 0;
  if (!tells && r.first != 0) return "a window of no holes";
  if (r.bits.size() != (tells ? (r.window() + 7) / 8 : 0)) return "a report of another length than it says";
  if (tells)
    if (const char* const why = check_bits(r)) return why;
  report = r;
  return nullptr;
}

const char* decode(const DatagramHeader& header, std::span<const std::byte> payload, BoundedTrial& trial) {
  if (!is_of(header, BoundedType::trial)) return "no trial of a way";
  if (header.own16 > 1 || header.own32 != 0) return "a trial of an unknown kind";
  if (payload.size() > kMaxDatagramPayload) return "a trial of more bytes than a datagram has";
  trial = {static_cast<std::uint16_t>(payload.size()), header.own16 == 1};
  return nullptr;
}

std::string to_string(const BoundedData& d, std::uint32_t iteration) {
  return fmt::format("data of tensor {}, iteration {}: packet {} of {}, {} bytes{}{}{}", d.tensor, iteration,
                     d.packet, d.packets, d.length(), d.last ? ", last" : "", d.again ? ", again" : "",
                     d.is_must ? ", must arrive" : "");
}

const char* to_string(BoundedEnd end) {
  switch (end) {
    case BoundedEnd::delivered:
      return "was delivered";
    case BoundedEnd::given_up:
      return "was given up by its receiver";
    case BoundedEnd::forgotten:
      break;
  }
  return "is over at its receiver and forgotten";
}

}  // namespace talweg::wire
