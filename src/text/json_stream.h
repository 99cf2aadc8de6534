// JsonStream: a JSON document of any length, read piece by piece in the memory of its longest token. The
// reader says what it expects next, and passes over the rest:
//
//   JsonStream json(read, "trace.json");          // read(into, most): how many bytes came, 0 at the end
//   json.begin_object();
//   while (json.next_member())
//     if (json.key() == "traceEvents") {
//       json.begin_array();
//       while (json.next_item()) json.skip();
//     } else {
//       json.skip();
//     }
//   json.end();
//
// Everything throws Error{bad_file}: "trace.json: byte 1234: expected a string". What is passed over is held
// to the grammar of brackets, commas and strings only; NaN and Infinity, as Python writes them, are passed
// over like numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace talweg::text {

class JsonStream {
 public:
  using Read = std::function<std::size_t(char* into, std::size_t most)>;
  JsonStream(Read read, std::string origin);
  JsonStream(const JsonStream&) = delete;
  JsonStream& operator=(const JsonStream&) = delete;

  enum class Kind { object, array, string, number, word };  // word: true, false, null, NaN
  Kind kind();

  void begin_object();
  bool next_member();  // false: the object has ended
  // Of the last member, unescaped; until its value has been read.
  std::string_view key() const { return key_; }

  void begin_array();
  bool next_item();  // false: the array has ended

  // Unescaped; until the next call.
  std::string_view string();
  // As it is written; until the next call.
  std::string_view number();
  std::int64_t integer();
  void skip();
  // Nothing but blanks may follow.
  void end();

  std::uint64_t position() const { return before_ + static_cast<std::uint64_t>(at_ - buffer_.data()); }
  [[noreturn]] void fail(const std::string& text) const;

  static constexpr std::size_t kMostToken = std::size_t{16} << 20;
  static constexpr int kMostDepth = 200;

 private:
  char next();  // the next that is no blank, which stays
  bool next_of(char closes);
  void deeper();
  bool more();
  // What stands between quotes, raw; whether there are escapes in it.
  std::string_view quoted(bool& escapes);
  std::string_view unescape(std::string_view raw);
  [[noreturn]] void expected(const char* what);

  Read read_;
  std::string origin_;
  std::vector<char> buffer_;  // NULs follow what is valid
  char* at_;                  // next to read
  char* end_;                 // behind what is valid
  char* kept_ = nullptr;      // where the token begins that must not move out; null between tokens
  std::uint64_t before_ = 0;  // bytes that have left the buffer
  bool first_ = false;        // nothing of the innermost container was read
  int depth_ = 0;
  std::string key_, scratch_;
};

}  // namespace talweg::text
