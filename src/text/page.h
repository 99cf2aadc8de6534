// A page for browsers that stands alone and is well-formed XML.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace talweg::text {

struct Page {
  std::string title;            // plain text
  std::string_view style = {};  // CSS
  std::string body = {};        // XHTML, below the heading
  std::string data =
      {};  // JSON that the script finds in the element "data"; empty: none, and no script either
  std::string_view script = {};
};

std::string to_html(const Page& page);

// For Page::data: scripts put the document's texts into the page as they are, so they are made printable
// here.
std::string page_data(nlohmann::json document);

}  // namespace talweg::text
