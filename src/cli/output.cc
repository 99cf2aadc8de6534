#include "cli/output.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "formats/graphviz.h"
#include "formats/msccl.h"
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

void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  const auto name = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    return std::filesystem::equivalent(a, b, ignored) || name(a) == name(b);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& path = outputs[i];
    const auto there = std::filesystem::status(path, ignored);
    if (path.empty() || path == "-" || (exists(there) && !is_regular_file(there))) continue;
    for (const std::string& in : inputs)
      if (!in.empty() && same(path, in))
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{}: it would be written over the file that is read; give another name", path));
    for (std::size_t other = 0; other < i; ++other)
      if (!outputs[other].empty() && outputs[other] != "-" && same(path, outputs[other]))
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{}: two outputs would be written to it; give one another name", path));
  }
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
  if (format == "dot") return formats::to_dot(forest);
  return formats::to_xml(formats::to_msccl(forest));
}

}  // namespace talweg::cli
