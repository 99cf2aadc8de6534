#include "study/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/units.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

[[noreturn]] void refuse_sizes(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, "--bytes: " + text);
}

std::int64_t one_size(const std::string& text) {
  try {
    return parse_bytes(text).value;
  } catch (const Error& error) {
    refuse_sizes(error.what());
  }
}

void add_sizes(const std::string& text, int factor, std::int64_t least, std::vector<std::int64_t>& sizes) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) return sizes.push_back(one_size(text));
  const std::int64_t first = one_size(text.substr(0, dots)), last = one_size(text.substr(dots + 2));
  if (first > last) refuse_sizes(fmt::format("{}: the first size is larger than the last", text));
  if (first == 0 && last > 0) refuse_sizes("a size of 0 never grows by a factor");
  for (std::int64_t bytes = first; bytes < last; bytes *= factor) {
    if (bytes >= least) sizes.push_back(bytes);
    if (bytes > last / factor) break;
  }
  sizes.push_back(last);
}

}  // namespace

std::vector<std::int64_t> parse_sizes(const std::string& text, int factor, std::int64_t least) {
  std::vector<std::int64_t> sizes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) add_sizes(part, factor, least, sizes);
  if (sizes.empty()) refuse_sizes("expected sizes such as 4K..1G or 64K,1M");
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.size() > kMostSizes)
    refuse_sizes(fmt::format("{} sizes: expected at most {}", sizes.size(), kMostSizes));
  return sizes;
}

}  // namespace talweg::study
