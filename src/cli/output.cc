#include "cli/output.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "forest/graphviz.h"
#include "forest/msccl.h"
#include "talweg/error.h"

namespace talweg::cli {

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(ErrorCode::invalid_argument, fmt::format("cannot write {}", path));
}

void check_writable(const std::string& path) {
  std::error_code ignored;
  const auto there = std::filesystem::status(path, ignored);
  const bool absent = there.type() == std::filesystem::file_type::not_found;
  if (path == "-" || is_other(there)) return;  // a pipe, when it is opened, waits for its reader
  const bool opened = std::ofstream(path, std::ios::app).is_open();
  if (opened && absent) std::filesystem::remove(path, ignored);
  if (!opened) throw Error(ErrorCode::invalid_argument, fmt::format("cannot write {}", path));
}

void check_not_input(const std::string& path, const std::string& in) {
  std::error_code ignored;
  if (path != "-" && std::filesystem::is_regular_file(path, ignored) &&
      std::filesystem::equivalent(path, in, ignored))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: it would be written over the file that is read; give another name", path));
}

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
  if (format == "dot") return forest::to_dot(forest);
  return forest::to_xml(forest::to_msccl(forest));
}

}  // namespace talweg::cli
