// What ranks contribute in the soak, and what must come of it: small integers that are exact in every type,
// different for each step, rank and place, so that the serial reference is integer arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "talweg/types.h"

namespace talweg::soak {

// Which numbers one step uses.
struct Values {
  std::uint64_t seed = 0;
  DataType type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;
  int ranks = 1;

  // Writes elements first .. first + count - 1 of what `rank` contributes.
  void write(void* data, int rank, std::size_t first, std::size_t count) const;
  // How many of `count` elements are not what `rank` contributed at first .. first + count - 1.
  std::size_t wrong(const void* data, int rank, std::size_t first, std::size_t count) const;
  // The same for what the reduction makes of all ranks' elements.
  std::size_t wrong_reduced(const void* data, std::size_t first, std::size_t count) const;

 private:
  int value(int rank, std::size_t index) const;
  int reduced(std::size_t index) const;
  bool equal(const std::byte* element, int value) const;
};

}  // namespace talweg::soak
