// Values as bytes and back: varints of 7 bits a byte, the lowest first. Nothing that is read is trusted:
// every length is checked against what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "talweg/error.h"

namespace talweg {

class ByteWriter {
 public:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  // Small where the value is near 0, on either side.
  void signed_number(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void bytes(std::span<const std::byte> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  void text(const std::string& text) {
    number(text.size());
    bytes(std::as_bytes(std::span(text)));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void byte(std::uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  std::vector<std::byte> bytes_;
};

// Every read throws Error{corrupted} "WHAT: ..." where the bytes end too soon or a number is out of range.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  std::uint64_t number(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) fail("it ends too soon");
      const auto next = std::to_integer<std::uint64_t>(bytes_.front());
      bytes_ = bytes_.subspan(1);
      if (shift == 63 && next > 1) break;
      value |= (next & 0x7f) << shift;
      if (next >= 0x80) continue;
      if (value > most)
        fail("a number is " + std::to_string(value) + ", expected at most " + std::to_string(most));
      return value;
    }
    fail("a number is longer than 64 bits");
  }
  std::int64_t signed_number() {
    const std::uint64_t folded = number();
    return static_cast<std::int64_t>(folded >> 1) ^ -static_cast<std::int64_t>(folded & 1);
  }
  std::span<const std::byte> bytes(std::size_t n) {
    if (n > bytes_.size()) fail("it ends too soon");
    const auto taken = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return taken;
  }
  std::string text(std::size_t longest) {
    const auto taken = bytes(number(longest));
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::size_t left() const { return bytes_.size(); }
  void expect_end() const {
    if (!bytes_.empty()) fail(std::to_string(bytes_.size()) + " bytes are left over");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::corrupted, what_ + ": " + why);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string what_;
};

}  // namespace talweg
