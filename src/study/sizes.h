// The grammar of --bytes and of --ranks, for all commands: "4K..1G", "64K,1M", or both mixed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace talweg::study {

inline constexpr std::size_t kMostSizes = 100;  // no table is read that is longer

// Ascending, each once. A range grows by `factor` (at least 2) from its first size, its last is always there,
// and it begins with the first of its sizes that is at least `least`. Throws Error{invalid_argument} that
// names --bytes.
std::vector<std::int64_t> parse_sizes(const std::string& text, int factor, std::int64_t least = 1);

// Whether there is a range in it, which a factor leads through.
inline bool has_range(const std::string& sizes) {
  return sizes.find("..") != std::string::npos;
}

// The same of whole numbers of ranks from 2 to `most`; ranges double. Throws Error{invalid_argument} that
// names --ranks.
std::vector<int> parse_ranks(const std::string& text, int most);

}  // namespace talweg::study
