// What the fuzzers share. Each defines LLVMFuzzerTestOneInput and must never crash, hang or grow, whatever
// comes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "talweg/error.h"

namespace talweg::fuzz {

// What must hold of everything that a decoder lets through.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// Runs what may refuse its input: by a talweg::Error of one line, and by nothing else.
template <class Function>
void may_refuse(Function&& function) {
  try {
    function();
  } catch (const Error& e) {
    require(*e.what() != '\0');
  }
}

}  // namespace talweg::fuzz
