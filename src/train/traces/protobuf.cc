#include "train/traces/protobuf.h"

#include <fmt/format.h>

#include <bit>

#include "base/fail.h"

namespace talweg::train {

void Protobuf::fail(const std::string& text) const {
  throw_error(ErrorCode::bad_file, "{}: byte {}: {}", *origin_, base_ + at_, text);
}

std::uint64_t Protobuf::read_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == bytes_.size()) fail("expected the rest of a number, but it ends here");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    if (shift == 63 && byte > 1) fail("expected a number of at most 64 bits");
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail("expected a number of at most 64 bits");
}

std::string_view Protobuf::read_bytes(std::uint64_t count) {
  if (count > bytes_.size() - at_) fail(fmt::format("expected {} bytes, got {}", count, bytes_.size() - at_));
  const std::string_view text = bytes_.substr(at_, count);
  at_ += count;
  return text;
}

bool Protobuf::next() {
  if (at_end()) return false;
  const std::uint64_t tag = read_varint();
  field_ = static_cast<std::uint32_t>(tag >> 3);
  wire_ = static_cast<std::uint32_t>(tag & 7);
  if (field_ == 0 || tag >> 32 != 0) fail("expected the number of a field");
  if (wire_ == kVarint) {
    value_ = read_varint();
  } else if (wire_ == kBytes) {
    text_ = read_bytes(read_varint());
  } else if (wire_ == kEight || wire_ == kFour) {
    text_ = read_bytes(wire_ == kEight ? 8 : 4);
    value_ = 0;
    for (std::size_t i = text_.size(); i-- > 0;) value_ = value_ << 8 | static_cast<unsigned char>(text_[i]);
  } else {
    fail(fmt::format("field {}: expected a number or bytes, got wire type {}", field_, wire_));
  }
  return true;
}

std::uint64_t Protobuf::varint() const {
  if (wire_ == kBytes) fail(fmt::format("field {}: expected a number, got bytes", field_));
  return value_;
}

double Protobuf::real() const {
  if (wire_ == kFour) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value_)));
  if (wire_ != kEight) fail(fmt::format("field {}: expected a floating-point number", field_));
  return std::bit_cast<double>(value_);
}

std::string_view Protobuf::bytes() const {
  if (wire_ != kBytes) fail(fmt::format("field {}: expected bytes, got a number", field_));
  return text_;
}

Protobuf Protobuf::message() const {
  return {bytes(), *origin_, base_ + at_ - text_.size()};
}

}  // namespace talweg::train
