#include "text/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace talweg::text {
namespace {

constexpr std::size_t kMostText = std::size_t{256} << 20;
// The parser takes 0.5 s for each MiB, and 250 bytes for each thing between an outermost bracket and its end.
constexpr std::size_t kMostYaml = std::size_t{8} << 20;
constexpr std::ptrdiff_t kMostSeparators = 2 << 20;

constexpr std::uint32_t kNone = 0xffffffff;

// Its length where all of it is UTF-8.
std::size_t first_not_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace

// What the parser has seen, in 24 bytes for each node, where its own nodes take 500.
class YamlTree : public YAML::EventHandler {
 public:
  enum class Kind : std::uint8_t { nothing, word, list, map };
  struct Node {
    Kind kind;
    int line;
    std::uint32_t first;  // below it, or kNone; in a map keys and values take turns
    std::uint32_t next;   // beside it, or kNone
    std::uint32_t begin;  // of the word, in words_
    std::uint32_t length;
  };

  const Node& at(std::uint32_t node) const { return nodes_[node]; }
  std::string word(std::uint32_t node) const { return words_.substr(at(node).begin, at(node).length); }
  std::vector<std::uint32_t> below(std::uint32_t node) const {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = at(node).first; i != kNone; i = at(i).next) all.push_back(i);
    return all;
  }
  std::string describe(std::uint32_t node) const {
    switch (at(node).kind) {
      case Kind::word:
        return fmt::format("\"{}\"", word(node));
      case Kind::list:
        return fmt::format("a list of {}", below(node).size());
      default:
        return at(node).kind == Kind::map ? "a map" : "nothing";
    }
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {
    if (nodes_.empty()) add(Kind::nothing, YAML::Mark::null_mark(), 0);
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(Kind::nothing, mark, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    // The parser makes single bytes of some escapes, and of what follows a zero byte.
    if (first_not_utf8(value) != value.size()) throw YAML::ParserException(mark, "a word that is no UTF-8");
    Node& node = nodes_[add(Kind::word, mark, anchor)];
    node.begin = static_cast<std::uint32_t>(words_.size());
    node.length = static_cast<std::uint32_t>(value.size());
    words_ += value;
  }
  // A node may come to contain itself: readers go only as deep as they know.
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Node original = nodes_[anchors_.at(anchor)];
    Node& node = nodes_[add(original.kind, mark, 0)];
    node.first = original.first;
    node.begin = original.begin;
    node.length = original.length;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({add(Kind::list, mark, anchor), kNone});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({add(Kind::map, mark, anchor), kNone});
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    std::uint32_t node, last;
  };
  // The parser counts lines from 0.
  std::uint32_t add(Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    const auto node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({kind, std::max(0, mark.line) + 1, kNone, kNone, 0, 0});
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) return node;
    Open& in = open_.back();
    (in.last == kNone ? nodes_[in.node].first : nodes_[in.last].next) = node;
    in.last = node;
    return node;
  }

  std::deque<Node> nodes_;
  std::string words_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, std::uint32_t> anchors_;
};

YamlReader::YamlReader(std::shared_ptr<const YamlTree> tree, std::uint32_t node, std::string origin,
                       std::string path)
    : tree_(std::move(tree)), node_(node), origin_(std::move(origin)), path_(std::move(path)) {}

int YamlReader::line() const {
  return tree_->at(node_).line;
}

bool YamlReader::is_word() const {
  return tree_->at(node_).kind == YamlTree::Kind::word;
}

void YamlReader::fail(const std::string& text) const {
  const std::string where = path_.empty() ? "" : path_ + ": ";
  throw_error(ErrorCode::bad_file, "{}:{}: {}{}", origin_, line(), where, text);
}

void YamlReader::expected(const std::string& what) const {
  fail(fmt::format("expected {}, got {}", what, tree_->describe(node_)));
}

void YamlReader::allow_keys(std::initializer_list<const char*> keys) const {
  std::string known;
  for (const char* key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
  if (tree_->at(node_).kind != YamlTree::Kind::map) expected("a map with " + known);
  std::set<std::string> seen;
  const std::vector<std::uint32_t> entries = tree_->below(node_);
  for (std::size_t i = 0; i < entries.size(); i += 2) {
    const YamlReader key(tree_, entries[i], origin_, path_);
    if (!key.is_word()) key.expected("a key among " + known);
    const std::string name = key.text();
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
  if (tree_->at(node_).kind != YamlTree::Kind::map) return std::nullopt;
  for (std::uint32_t i = tree_->at(node_).first; i != kNone; i = tree_->at(tree_->at(i).next).next)
    if (tree_->at(i).kind == YamlTree::Kind::word && tree_->word(i) == key)
      return YamlReader(tree_, tree_->at(i).next, origin_, path_.empty() ? key : path_ + "." + key);
  return std::nullopt;
}

std::vector<YamlReader> YamlReader::items() const {
  if (tree_->at(node_).kind != YamlTree::Kind::list) expected("a list");
  std::vector<YamlReader> result;
  for (const std::uint32_t item : tree_->below(node_))
    result.emplace_back(tree_, item, origin_, fmt::format("{}[{}]", path_, result.size()));
  return result;
}

std::string YamlReader::text() const {
  if (!is_word()) expected("a word");
  return tree_->word(node_);
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
  if (!is_word() || !YAML::convert<bool>::decode(YAML::Node(text()), value)) expected("true or false");
  return value;
}

std::int64_t YamlReader::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  if (is_word()) {
    const std::string digits = text();
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
  const auto value = is_word() ? read_number(text()) : std::nullopt;
  if (!value || *value <= 0) expected("a number above 0");
  return *value;
}

double YamlReader::at_least_zero() const {
  const auto value = is_word() ? read_number(text()) : std::nullopt;
  if (!value || *value < 0) expected("a number, at least 0");
  return *value;
}

void require_utf8(std::string_view text, const std::string& origin) {
  const std::size_t at = first_not_utf8(text);
  if (at == text.size()) return;
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  throw_error(ErrorCode::bad_file, "{}:{}: expected UTF-8, got a byte {:#04x}", origin, line,
              static_cast<unsigned char>(text[at]));
}

YamlReader read_document(const std::string& text, const std::string& origin) {
  if (text.size() > kMostYaml)
    throw_error(ErrorCode::bad_file, "{}: expected at most {} MiB of YAML or JSON, got {:.1f}", origin,
                kMostYaml >> 20, static_cast<double>(text.size()) / (1 << 20));
  const auto separators =
      std::ranges::count_if(text, [](char c) { return c == ',' || c == ':' || c == '[' || c == '{'; });
  if (separators > kMostSeparators)
    throw_error(ErrorCode::bad_file,
                "{}: expected YAML or JSON with at most {} separators (, : [ {{), got {}", origin,
                kMostSeparators, separators);
  require_utf8(text, origin);
  try {
    const auto tree = std::make_shared<YamlTree>();
    std::istringstream in(text);
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(*tree)) tree->OnDocumentEnd();
    if (YamlTree second; parser.HandleNextDocument(second))
      throw_error(ErrorCode::bad_file, "{}:{}: expected one document, got another behind ---", origin,
                  second.at(0).line);
    return YamlReader(tree, 0, origin, "");
  } catch (const YAML::Exception& error) {
    throw_error(ErrorCode::bad_file, "{}:{}: expected YAML or JSON: {}", origin,
                std::max(0, error.mark.line) + 1, error.msg);
  }
}

std::string read_file(const std::string& path) {
  return read_input(path, path, kMostText);
}

}  // namespace talweg::text
