// Texts within other texts, such that what they quote of a file cannot steer a terminal or reorder what is
// read: as JSON it is there as \uXXXX and reads back the same; where nothing would read it back, it is shown
// as base/printable.h shows it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace talweg::text {

// Within the quotes of a JSON string; what is no UTF-8 becomes U+FFFD.
std::string json_escaped(std::string_view text);
// A document as a file of its own, indented; what is no UTF-8 becomes U+FFFD.
std::string json_document(const nlohmann::json& document);
// JSON text as it was, but for what steers.
std::string json_unsteered(std::string_view json);
// For text in XML, HTML and their attributes.
std::string xml_escaped(std::string_view text);
// Within the quotes of GraphViz and of a label of Prometheus: backslash, quote and line end.
std::string backslashed(std::string_view text);
// One word of a POSIX shell: 'it'\''s'.
std::string shell_quoted(std::string_view text);

}  // namespace talweg::text
