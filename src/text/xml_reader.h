// XmlReader: an element of an XML document that knows where it stands; what YamlReader is for YAML.
//
//   const XmlDocument document(text, "topo.xml");
//   for (const XmlReader& cpu : document.root().children({"cpu"})) cpu.text("numaid");
//
// Everything throws Error{bad_file}: "topo.xml:7: <net>: speed: expected a number above 0, got \"fast\"".
// Readers must not outlive their document.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <vector>

namespace talweg::text {

class XmlDocument;

class XmlReader {
 public:
  XmlReader(const XmlDocument& document, pugi::xml_node node) : document_(&document), node_(node) {}

  std::string name() const { return node_.name(); }
  int line() const;
  [[noreturn]] void fail(const std::string& text) const;

  // The elements below; only those with these names may be there.
  std::vector<XmlReader> children(std::initializer_list<const char*> names) const;

  // Attributes. Numbers are finite and at least 0, or above it.
  bool has(const char* attribute) const { return !node_.attribute(attribute).empty(); }
  std::string text(const char* attribute) const;
  std::string text(const char* attribute, const std::string& otherwise) const;
  double at_least_zero(const char* attribute, double otherwise) const;
  double above_zero(const char* attribute) const;
  std::int64_t integer(const char* attribute, std::int64_t least, std::int64_t most) const;

 private:
  [[noreturn]] void expected(const char* attribute, const std::string& what) const;

  const XmlDocument* document_;
  pugi::xml_node node_;
};

class XmlDocument {
 public:
  // `origin` is what the text is called in messages.
  XmlDocument(const std::string& text, std::string origin);

  XmlReader root() const { return {*this, document_.document_element()}; }
  const std::string& origin() const { return origin_; }
  int line_at(std::ptrdiff_t offset) const;

 private:
  std::string origin_;
  pugi::xml_document document_;
  std::vector<std::ptrdiff_t> line_starts_;
};

}  // namespace talweg::text
