// Writes protobuf's wire format, for tests of what reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace talweg::train {

class ProtobufWriter {
 public:
  ProtobufWriter& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  ProtobufWriter& bytes(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  ProtobufWriter& message(std::uint32_t field, const ProtobufWriter& value) {
    return bytes(field, value.text_);
  }
  // In front of it its length, as in files of messages.
  ProtobufWriter& delimited(const ProtobufWriter& value) {
    varint(value.text_.size());
    text_ += value.text_;
    return *this;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace talweg::train
