// YamlReader: a node of a YAML (or JSON) document that knows where it stands, so that whatever is wrong with
// it can be said as "cluster.yaml:7: links[2].capacity: expected a bandwidth such as 1Gbit/s, got \"fast\"".
//
//   const YamlReader document = read_document(text, "cluster.yaml");
//   document.allow_keys({"nodes", "links"});
//   for (const YamlReader& node : document.required("nodes").items()) node.required("name").text();
//
// Everything throws Error{bad_file}.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace talweg::text {

class YamlTree;

class YamlReader {
 public:
  // Of the node with that number.
  YamlReader(std::shared_ptr<const YamlTree> tree, std::uint32_t node, std::string origin, std::string path);

  int line() const;
  // "cluster.yaml:7: links[2].capacity: <text>"
  [[noreturn]] void fail(const std::string& text) const;
  // As fail("expected <what>, got <this node>").
  [[noreturn]] void expected(const std::string& what) const;

  // This is a map with these keys only, each at most once.
  void allow_keys(std::initializer_list<const char*> keys) const;
  YamlReader required(const char* key) const;
  std::optional<YamlReader> optional(const char* key) const;
  std::vector<YamlReader> items() const;

  bool is_word() const;
  std::string text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  // Finite.
  double above_zero() const;
  double at_least_zero() const;

 private:
  std::shared_ptr<const YamlTree> tree_;
  std::uint32_t node_;
  std::string origin_;
  std::string path_;  // such as "links[2].capacity"; empty for the document
};

// `origin` is what the text is called in messages. Of at most 8 MiB and 2 Mi separators.
YamlReader read_document(const std::string& text, const std::string& origin);
// All of `text` as a number, if it is one and finite.
std::optional<double> read_number(const std::string& text);
// Throws Error{bad_file} that names the line unless all of `text` is UTF-8 (RFC 3629).
void require_utf8(std::string_view text, const std::string& origin);
// The text of a file, of up to 256 MiB. Throws as read_input (base/input_file.h) does.
std::string read_file(const std::string& path);

}  // namespace talweg::text
