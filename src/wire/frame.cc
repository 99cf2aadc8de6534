#include "wire/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/crc32c.h"

namespace talweg::wire {

namespace {
constexpr std::size_t kChecked = sizeof(Header) - sizeof(std::uint32_t);

constexpr unsigned bit(FrameType type) {
  return 1U << static_cast<unsigned>(type);
}
constexpr unsigned kWithPayload = bit(FrameType::up) | bit(FrameType::down) | bit(FrameType::failure) |
                                  bit(FrameType::group_failure) | bit(FrameType::plan) |
                                  bit(FrameType::report);

// Of a transfer's own types, else kOwnKinds or more.
constexpr unsigned own_kind(FrameType type) {
  return static_cast<unsigned>(type) - kOwnTypes;
}
}  // namespace

void set_signature(Header& header, const Signature& s) {
  header.op = s.op;
  header.data_type = s.type;
  header.reduction = s.reduction;
  header.root = static_cast<std::uint16_t>(s.root);
  header.count = s.count;
  header.layout = s.layout;
  header.plan = s.plan;
}

Signature signature_of(const Header& h) {
  return {h.op, h.data_type, h.reduction, h.root, h.count, h.layout, h.plan};
}

void seal(Header& header) {
  header.header_checksum = crc32c(&header, kChecked);
}

const char* check(const Header& header) {
  const auto type = static_cast<unsigned>(header.type);
  const bool own = own_kind(header.type) < kOwnKinds;
  if ((type == 0 || type >= kFrameTypes) && !own) return "unknown frame type";
  if (static_cast<unsigned>(header.op) >= kCollectives) return "unknown collective";
  if (static_cast<unsigned>(header.data_type) >= kDataTypes) return "unknown element type";
  if (static_cast<unsigned>(header.reduction) >= kReduceOps) return "unknown reduction";
  if (header.length > kMaxPayload) return "payload longer than any chunk";
  if (header.length > 0 && !own && (kWithPayload >> type & 1U) == 0) return "a payload where none can be";
  return nullptr;
}

const char* decode(std::span<const std::byte, sizeof(Header)> bytes, Header& header) {
  std::memcpy(&header, bytes.data(), sizeof header);
  constexpr std::uint32_t kVersionMask = 0xff000000;
  if ((header.magic & ~kVersionMask) != (kMagic & ~kVersionMask)) return "these are not Talweg frames";
  if (header.magic != kMagic) return "another version of the frame layout";
  if (header.header_checksum != crc32c(&header, kChecked)) return "header checksum does not match";
  return check(header);
}

std::string to_string(const Header& h) {
  static constexpr const char* kNames[] = {
      "?",    "announce", "up",   "down",          "credit", "failure", "request", "clear", "goodbye",
      "wake", "ping",     "pong", "group_failure", "leave",  "plan",    "report",  "lost"};
  static_assert(std::size(kNames) == kFrameTypes);
  const unsigned own = own_kind(h.type);
  const std::string type =
      own < kOwnKinds ? fmt::format("own {}", own) : kNames[static_cast<unsigned>(h.type)];
  return fmt::format("{} group {} #{} tree {} chunk {} length {} {}", type, h.group, h.sequence, h.tree,
                     h.chunk, h.length, to_string(signature_of(h)));
}

}  // namespace talweg::wire
