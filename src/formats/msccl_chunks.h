// The first step towards MSCCL: a forest whose elements are chunks, few and of equal size.
#pragma once

#include <string>

#include "forest/forest.h"

namespace talweg::formats {

using forest::Forest;

// The same trees over a vector of at most `most_chunks` elements (or one for each part, if that is more): as
// few as keep every slice within 1 % of its share, or those that come nearest. Empty slices are gone. Throws
// Error{unsupported} when parts differ in length, are empty, or hold more slices than chunks.
Forest in_chunks(const Forest& forest, int most_chunks);

// Throws Error{unsupported}, with what it is for.
[[noreturn]] void refuse_for_msccl(const std::string& text);

}  // namespace talweg::formats
