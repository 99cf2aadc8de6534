#include "cluster/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "talweg/error.h"

namespace talweg::cluster {
namespace {

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

YamlReader read_document(const std::string& text, const std::string& origin) {
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
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace talweg::cluster
