#include "text/json_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/fail.h"

namespace talweg::text {
namespace {

constexpr std::size_t kWindow = std::size_t{1} << 18;
constexpr std::size_t kBehind = 8;  // NULs behind what is valid, so that eight bytes can be read anywhere

constexpr const char* kNul = "expected no NUL bytes: the file is damaged";

// Bytes that numbers are made of.
constexpr std::array<bool, 256> kOfNumber = [] {
  std::array<bool, 256> table{};
  for (const char c : std::string_view("0123456789+-.eE")) table[static_cast<unsigned char>(c)] = true;
  return table;
}();

// Eight bytes at once, the first one lowest; sums of single bytes never carry into the next.
constexpr std::uint64_t kOnes = 0x0101010101010101, kHighs = kOnes * 0x80;

std::uint64_t eight(const char* p) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}
// The high bit of each byte that is zero; bytes behind the first of them may be marked, too.
constexpr std::uint64_t zeros(std::uint64_t word) {
  return (word - kOnes) & ~word & kHighs;
}
// How many of the next bytes of a string need no look, at most 8.
int plain_bytes(const char* p) {
  const std::uint64_t word = eight(p);
  const std::uint64_t look = zeros(word ^ (kOnes * '"')) | zeros(word ^ (kOnes * '\\')) |
                             ((word - kOnes * 0x20) & ~word & kHighs);  // below 0x20
  return look == 0 ? 8 : std::countr_zero(look) / 8;
}
// How many of the next bytes are spaces, at most 8.
int spaces(const char* p) {
  const std::uint64_t other = eight(p) ^ (kOnes * ' ');
  return other == 0 ? 8 : std::countr_zero(other) / 8;
}

bool of_number(char c) {
  return kOfNumber[static_cast<unsigned char>(c)];
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void append_utf8(std::string& to, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool hex4(std::string_view text, std::uint32_t& into) {
  if (text.size() < 4) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, into, 16);
  return error == std::errc() && end == text.data() + 4;
}

}  // namespace

JsonStream::JsonStream(Read read, std::string origin)
    : read_(std::move(read)),
      origin_(std::move(origin)),
      buffer_(kWindow + kBehind),
      at_(buffer_.data()),
      end_(at_) {}

void JsonStream::fail(const std::string& text) const {
  throw_error(ErrorCode::bad_file, "{}: byte {}: {}", origin_, position(), text);
}

void JsonStream::expected(const char* what) {
  if (*at_ == '\0') fail(fmt::format("expected {}, but the file ends here", what));
  fail(
      fmt::format("expected {}, got \"{}\"", what,
                  std::string_view(at_, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end_ - at_, 12)))));
}

// Makes room by dropping what was read, and reads on. False at the end of the document.
bool JsonStream::more() {
  char* keep = kept_ != nullptr ? kept_ : at_;
  const auto held = static_cast<std::size_t>(end_ - keep);
  const auto ahead = at_ - keep;
  before_ += static_cast<std::uint64_t>(keep - buffer_.data());
  std::memmove(buffer_.data(), keep, held);
  if (held + kBehind >= buffer_.size()) {
    if (buffer_.size() > kMostToken) {
      at_ = buffer_.data();
      fail(fmt::format("expected texts of at most {} MiB", kMostToken >> 20));
    }
    buffer_.resize(buffer_.size() * 2);
  }
  if (kept_ != nullptr) kept_ = buffer_.data();
  at_ = buffer_.data() + ahead;
  end_ = buffer_.data() + held;
  const std::size_t came = read_(end_, buffer_.size() - kBehind - held);
  end_ += came;
  std::memset(end_, 0, kBehind);
  return came > 0;
}

char JsonStream::next() {
  while (true) {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') {
      ++at_;
      if (*at_ == ' ') at_ += spaces(at_);
    }
    if (*at_ != '\0') return *at_;
    if (at_ != end_) fail(kNul);
    if (!more()) return '\0';
  }
}

JsonStream::Kind JsonStream::kind() {
  const char c = next();
  if (c == '{') return Kind::object;
  if (c == '[') return Kind::array;
  if (c == '"') return Kind::string;
  if (c == '-' || (c >= '0' && c <= '9')) return Kind::number;
  if (is_letter(c)) return Kind::word;
  expected("a value");
}

void JsonStream::deeper() {
  ++at_;
  first_ = true;
  if (++depth_ > kMostDepth) fail(fmt::format("expected values nested at most {} deep", kMostDepth));
}

void JsonStream::begin_object() {
  if (next() != '{') expected("an object");
  deeper();
}

void JsonStream::begin_array() {
  if (next() != '[') expected("a list");
  deeper();
}

bool JsonStream::next_of(char closes) {
  const char c = next();
  if (c == closes) {
    ++at_;
    --depth_;
    first_ = false;
    return false;
  }
  if (!first_) {
    if (c != ',') expected(closes == '}' ? "\",\" or \"}\"" : "\",\" or \"]\"");
    ++at_;
  }
  first_ = false;
  return true;
}

bool JsonStream::next_member() {
  if (!next_of('}')) return false;
  if (next() != '"') expected("the name of a member");
  bool escapes = false;
  const std::string_view raw = quoted(escapes);
  key_ = escapes ? unescape(raw) : raw;
  if (next() != ':') expected("\":\"");
  ++at_;
  return true;
}

bool JsonStream::next_item() {
  return next_of(']');
}

std::string_view JsonStream::quoted(bool& escapes) {
  kept_ = at_;
  char* p = at_ + 1;
  while (true) {
    for (int plain = 8; plain == 8; p += plain) plain = plain_bytes(p);
    if (*p == '"') break;
    if (*p == '\\' && p + 1 != end_) {
      escapes = true;
      p += p[1] == '"' || p[1] == '\\' ? 2 : 1;
      continue;
    }
    at_ = p;
    if (p != end_ && *p != '\\') fail(*p == '\0' ? kNul : "expected no control characters within a string");
    if (!more()) fail("expected the end of a string, but the file ends here");
    p = at_;
  }
  const std::string_view raw(kept_ + 1, static_cast<std::size_t>(p - kept_ - 1));
  at_ = p + 1;
  kept_ = nullptr;
  return raw;
}

std::string_view JsonStream::unescape(std::string_view raw) {
  scratch_.clear();
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      scratch_ += raw[i];
      continue;
    }
    static constexpr std::string_view kShort = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char c = raw[++i];
    if (const auto which = kShort.find(c); which != std::string_view::npos) {
      scratch_ += kMeant[which];
      continue;
    }
    std::uint32_t code = 0;
    if (c != 'u' || !hex4(raw.substr(i + 1), code)) fail("expected an escape such as \\n or \\u00e4");
    i += 4;
    std::uint32_t low = 0;
    if (code >= 0xD800 && code < 0xDC00 && raw.substr(i + 1).starts_with("\\u") &&
        hex4(raw.substr(i + 3), low) && low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      i += 6;
    } else if (code >= 0xD800 && code < 0xE000) {
      code = 0xFFFD;  // half of a pair
    }
    append_utf8(scratch_, code);
  }
  return scratch_;
}

std::string_view JsonStream::string() {
  if (next() != '"') expected("a string");
  bool escapes = false;
  const std::string_view raw = quoted(escapes);
  return escapes ? unescape(raw) : raw;
}

std::string_view JsonStream::number() {
  const char c = next();
  if (c != '-' && (c < '0' || c > '9')) expected("a number");
  kept_ = at_;
  while (true) {
    while (of_number(*at_)) ++at_;
    if (at_ != end_ || !more()) break;
  }
  if (at_ == end_ && depth_ > 0) fail("expected more behind a number, but the file ends here");
  const std::string_view text(kept_, static_cast<std::size_t>(at_ - kept_));
  kept_ = nullptr;
  return text;
}

std::int64_t JsonStream::integer() {
  const std::string_view text = number();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(fmt::format("expected a whole number of 64 bits, got {}", text));
  return value;
}

void JsonStream::skip() {
  const Kind what = kind();
  if (what == Kind::string) {
    bool escapes = false;
    quoted(escapes);
  } else if (what == Kind::number) {
    number();
    if (is_letter(*at_)) skip();  // -Infinity
  } else if (what == Kind::object) {
    begin_object();
    while (next_of('}')) {
      if (next() != '"') expected("the name of a member");
      bool escapes = false;
      quoted(escapes);
      if (next() != ':') expected("\":\"");
      ++at_;
      skip();
    }
  } else if (what == Kind::array) {
    begin_array();
    while (next_item()) skip();
  } else {
    kept_ = at_;
    while (true) {
      while (is_letter(*at_)) ++at_;
      if (at_ != end_ || !more()) break;
    }
    const std::string_view word(kept_, static_cast<std::size_t>(at_ - kept_));
    kept_ = nullptr;
    if (word != "true" && word != "false" && word != "null" && word != "NaN" && word != "Infinity")
      fail(fmt::format("expected a value, got {}", word));
  }
}

void JsonStream::end() {
  if (next() != '\0') expected("the end of the document");
}

}  // namespace talweg::text
