#include "text/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "talweg/error.h"

namespace talweg::text {
namespace {

constexpr std::size_t kMostText = std::size_t{256} << 20;

// yaml-cpp counts lines from 0 and has -1 for nodes that stand nowhere.
int line_of(const YAML::Node& node, int otherwise) {
  return node.Mark().line >= 0 ? node.Mark().line + 1 : otherwise;
}

std::string describe(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("\"{}\"", node.Scalar());
  if (node.IsSequence()) return fmt::format("a list of {}", node.size());
  return node.IsMap() ? "a map" : "nothing";
}

// The length of the character that begins the text, or 0 if none does: what RFC 3629, section 4 allows.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool too_long = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool no_character = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return too_long || no_character ? 0 : length;
}

}  // namespace

YamlReader::YamlReader(const YAML::Node& node, std::string origin, std::string path, int line)
    : node_(node), origin_(std::move(origin)), path_(std::move(path)), line_(line_of(node, line)) {}

void YamlReader::fail(const std::string& text) const {
  const std::string where = path_.empty() ? "" : path_ + ": ";
  throw Error(ErrorCode::bad_file, fmt::format("{}:{}: {}{}", origin_, line_, where, text));
}

void YamlReader::expected(const std::string& what) const {
  fail(fmt::format("expected {}, got {}", what, describe(node_)));
}

void YamlReader::allow_keys(std::initializer_list<const char*> keys) const {
  std::string known;
  for (const char* key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
  if (!node_.IsMap()) expected("a map with " + known);
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const YamlReader key(entry.first, origin_, path_, line_);
    if (!entry.first.IsScalar()) key.expected("a key among " + known);
    const std::string& name = entry.first.Scalar();
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
      key.fail(fmt::format("unknown key \"{}\": expected {}", name, known));
    }
    if (!seen.insert(name).second)
      key.fail(fmt::format("key \"{}\" is written twice: expected it once", name));
  }
}

YamlReader YamlReader::required(const char* key) const {
  auto child = optional(key);
  if (!child) fail(fmt::format("expected a key \"{}\"", key));
  return *std::move(child);
}

std::optional<YamlReader> YamlReader::optional(const char* key) const {
  const YAML::Node child = std::as_const(node_)[key];
  if (!child) return std::nullopt;
  return YamlReader(child, origin_, path_.empty() ? key : path_ + "." + key, line_);
}

std::vector<YamlReader> YamlReader::items() const {
  if (!node_.IsSequence()) expected("a list");
  std::vector<YamlReader> result;
  for (const auto& item : node_) {
    result.emplace_back(item, origin_, fmt::format("{}[{}]", path_, result.size()), line_);
  }
  return result;
}

std::string YamlReader::text() const {
  if (!node_.IsScalar()) expected("a word");
  return node_.Scalar();
}

std::optional<double> read_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool YamlReader::boolean() const {
  bool value = false;
  if (!node_.IsScalar() || !YAML::convert<bool>::decode(node_, value)) expected("true or false");
  return value;
}

std::int64_t YamlReader::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  if (node_.IsScalar()) {
    const std::string& digits = node_.Scalar();
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc{} && stop == end && value >= least && value <= most) return value;
  }
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  if (least == kMin && most == kMax) expected("an integer");
  expected(most == kMax ? fmt::format("an integer of at least {}", least)
                        : fmt::format("an integer from {} to {}", least, most));
}

double YamlReader::above_zero() const {
  const auto value = node_.IsScalar() ? read_number(node_.Scalar()) : std::nullopt;
  if (!value || *value <= 0) expected("a number above 0");
  return *value;
}

double YamlReader::at_least_zero() const {
  const auto value = node_.IsScalar() ? read_number(node_.Scalar()) : std::nullopt;
  if (!value || *value < 0) expected("a number, at least 0");
  return *value;
}

void require_utf8(std::string_view text, const std::string& origin) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
      throw Error(ErrorCode::bad_file, fmt::format("{}:{}: expected UTF-8, got a byte {:#04x}", origin, line,
                                                   static_cast<unsigned char>(text[at])));
    }
    at += length;
  }
}

YamlReader read_document(const std::string& text, const std::string& origin) {
  require_utf8(text, origin);
  try {
    return YamlReader(YAML::Load(text), origin, "", 1);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorCode::bad_file, fmt::format("{}:{}: expected YAML or JSON: {}", origin,
                                                 std::max(0, error.mark.line) + 1, error.msg));
  }
}

std::string read_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: expected a file, got a directory", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: cannot read it: {}", path, std::strerror(errno)));
  }
  std::string text;
  std::vector<char> part(std::size_t{1} << 16);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMostText)
      throw Error(ErrorCode::bad_file,
                  fmt::format("{}: expected a file of at most {} MiB", path, kMostText >> 20));
  }
  return text;
}

}  // namespace talweg::text
