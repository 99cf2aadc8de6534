#include "wire/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/crc32c.h"

namespace talweg::wire {

namespace {
constexpr std::size_t kChecked = sizeof(Header) - sizeof(std::uint32_t);
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
  if (type == 0 || (type >= kFrameTypes && type - kOwnTypes >= kOwnKinds)) return "unknown frame type";
  if (static_cast<unsigned>(header.op) >= kCollectives) return "unknown collective";
  if (static_cast<unsigned>(header.data_type) >= kDataTypes) return "unknown element type";
  if (static_cast<unsigned>(header.reduction) >= kReduceOps) return "unknown reduction";
  if (header.length > kMaxPayload) return "payload longer than any chunk";
  if (header.length > 0 && facts(header.type).payload == Payload::none) return "a payload where none can be";
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
  return fmt::format("{} group {} #{} tree {} chunk {} length {} {}", facts(h.type).name, h.group, h.sequence,
                     h.tree, h.chunk, h.length, to_string(signature_of(h)));
}

}  // namespace talweg::wire
