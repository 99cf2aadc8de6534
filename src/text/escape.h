// Texts within other texts. What is shown to people goes through base/printable.h.
#pragma once

#include <string>
#include <string_view>

namespace talweg::text {

// Within the quotes of a JSON string; what is no UTF-8 becomes U+FFFD.
std::string json_escaped(std::string_view text);
// JSON text as it was, but for what could steer a terminal or reorder what is read in it: that is there as
// \uXXXX.
std::string json_unsteered(std::string_view json);
// For text in XML, HTML and their attributes; control characters, which XML cannot hold, become blanks.
std::string xml_escaped(std::string_view text);
// Within the quotes of GraphViz and of a label of Prometheus: backslash, quote and line end.
std::string backslashed(std::string_view text);
// One word of a POSIX shell: 'it'\''s'.
std::string shell_quoted(std::string_view text);

}  // namespace talweg::text
