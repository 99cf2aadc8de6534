#include "formats/forest_text.h"

#include <utility>

#include "formats/graphviz.h"
#include "formats/msccl.h"

namespace talweg::formats {

std::string format_of_ending(const std::string& path) {
  constexpr std::pair<const char*, const char*> kEndings[] = {{".yaml", "yaml"}, {".yml", "yaml"},
                                                              {".json", "json"}, {".dot", "dot"},
                                                              {".gv", "dot"},    {".xml", "msccl"}};
  for (const auto& [ending, format] : kEndings)
    if (path.ends_with(ending)) return format;
  return {};
}

std::string forest_text(const forest::Forest& forest, const std::string& format) {
  if (format == "yaml") return forest::to_yaml(forest);
  if (format == "json") return forest::to_json(forest);
  if (format == "dot") return to_dot(forest);
  return to_xml(to_msccl(forest));
}

}  // namespace talweg::formats
