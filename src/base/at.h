#pragma once

#include <cstddef>

namespace talweg {

// A rank, node or other number that is not negative, as the index of a container.
constexpr std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace talweg
