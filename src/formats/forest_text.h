// Forests in the formats there are for them.
#pragma once

#include <string>

#include "forest/forest.h"

namespace talweg::formats {

// By the ending of `path`: "yaml", "json", "dot" or "msccl"; empty if it has none of theirs.
std::string format_of_ending(const std::string& path);

// Throws Error{unsupported} where a format cannot express the forest.
std::string forest_text(const forest::Forest& forest, const std::string& format);

}  // namespace talweg::formats
