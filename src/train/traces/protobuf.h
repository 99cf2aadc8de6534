// Reading protobuf's wire format: fields of a message, one after another, each with its number and its value.
// Which fields mean what is for the reader of the message to know.
//
//   for (Protobuf message(bytes, "model.onnx"); message.next();)
//     if (message.field() == 7) read_graph(message.bytes());
//
// Every length is held against what is left. Throws Error{bad_file}: "model.onnx: byte 12: ...".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace talweg::train {

class Protobuf {
 public:
  // `at` is where the bytes stand in the file. They and the origin must outlive the reader.
  Protobuf(std::string_view bytes, const std::string& origin, std::size_t at = 0)
      : bytes_(bytes), origin_(&origin), base_(at) {}

  // Reads the next field; false at the end.
  bool next();
  std::uint32_t field() const { return field_; }

  // Of the field: fails if it has another kind.
  std::uint64_t varint() const;
  std::int64_t integer() const { return static_cast<std::int64_t>(varint()); }
  std::string_view bytes() const;
  double real() const;       // of four bytes or eight
  Protobuf message() const;  // its bytes, as a message
  // A list of numbers: one of them, or many that are packed; calls take(std::int64_t) for each.
  template <class Take>
  void integers(Take&& take) const {
    if (wire_ == kVarint) return take(integer());
    for (Protobuf packed = message(); packed.at_ < packed.bytes_.size();)
      take(static_cast<std::int64_t>(packed.read_varint()));
  }

  [[noreturn]] void fail(const std::string& text) const;
  // A number in front of what is read next, such as the length of a message in a file of messages.
  std::uint64_t read_varint();
  std::string_view read_bytes(std::uint64_t count);
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  static constexpr std::uint32_t kVarint = 0, kEight = 1, kBytes = 2, kFour = 5;

  std::string_view bytes_;
  const std::string* origin_;
  std::size_t base_, at_ = 0;
  std::uint32_t field_ = 0, wire_ = kVarint;
  std::uint64_t value_ = 0;
  std::string_view text_;
};

}  // namespace talweg::train
