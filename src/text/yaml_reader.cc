#include "text/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace talweg::text {
namespace {

constexpr std::size_t kMostText = std::size_t{256} << 20;
// The parser takes 0.1 to 0.4 s and 100 to 300 MB for each MiB.
constexpr std::size_t kMostYaml = std::size_t{8} << 20;

// yaml-cpp counts lines from 0 and has -1 for nodes that stand nowhere.
int line_of(const YAML::Node& node, int otherwise) {
  return node.Mark().line >= 0 ? node.Mark().line + 1 : otherwise;
}

std::string describe(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("\"{}\"", node.Scalar());
  if (node.IsSequence()) return fmt::format("a list of {}", node.size());
  return node.IsMap() ? "a map" : "nothing";
}

}  // namespace

YamlReader::YamlReader(const YAML::Node& node, std::string origin, std::string path, int line)
    : node_(node), origin_(std::move(origin)), path_(std::move(path)), line_(line_of(node, line)) {}

void YamlReader::fail(const std::string& text) const {
  const std::string where = path_.empty() ? "" : path_ + ": ";
  throw_error(ErrorCode::bad_file, "{}:{}: {}{}", origin_, line_, where, text);
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
    if (std::ranges::find(keys, name) == keys.end()) {
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
      throw_error(ErrorCode::bad_file, "{}:{}: expected UTF-8, got a byte {:#04x}", origin, line,
                  static_cast<unsigned char>(text[at]));
    }
    at += length;
  }
}

YamlReader read_document(const std::string& text, const std::string& origin) {
  if (text.size() > kMostYaml)
    throw_error(ErrorCode::bad_file, "{}: expected at most {} MiB of YAML or JSON, got {:.1f}", origin,
                kMostYaml >> 20, static_cast<double>(text.size()) / (1 << 20));
  require_utf8(text, origin);
  try {
    return YamlReader(YAML::Load(text), origin, "", 1);
  } catch (const YAML::Exception& error) {
    throw_error(ErrorCode::bad_file, "{}:{}: expected YAML or JSON: {}", origin,
                std::max(0, error.mark.line) + 1, error.msg);
  }
}

std::string read_file(const std::string& path) {
  return read_input(path, path, kMostText);
}

}  // namespace talweg::text
