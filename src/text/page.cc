#include "text/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "text/escape.h"

namespace talweg::text {
namespace {

// In a <script>: nothing in it can end the element or upset a reader of XML. All three stand in strings only.
std::string script_safe(const std::string& json) {
  std::string safe;
  for (const char c : json)
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
  return safe;
}

void make_printable(nlohmann::json& value) {
  if (value.is_string()) value = printable(value.get_ref<const std::string&>());
  if (value.is_structured())
    for (nlohmann::json& each : value) make_printable(each);
}

}  // namespace

std::string page_data(nlohmann::json document) {
  make_printable(document);
  return document.dump(-1, ' ', true);
}

std::string to_html(const Page& page) {
  std::string html = fmt::format(
      R"(<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{0}</title>
<style>
{1}</style>
</head>
<body>
<h1>{0}</h1>
{2})",
      xml_escaped(page.title), page.style, page.body);
  if (!page.data.empty())
    html += fmt::format(
        R"(<script type="application/json" id="data">{}</script>
<script>
//<![CDATA[
{}//]]>
</script>
)",
        script_safe(page.data), page.script);
  return html + "</body>\n</html>\n";
}

}  // namespace talweg::text
