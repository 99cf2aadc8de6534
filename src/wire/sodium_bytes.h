#pragma once

#include <cstddef>

namespace talweg::wire {

// Bytes as libsodium takes them.
inline const unsigned char* raw(const std::byte* p) {
  return reinterpret_cast<const unsigned char*>(p);
}
inline unsigned char* raw(std::byte* p) {
  return reinterpret_cast<unsigned char*>(p);
}

}  // namespace talweg::wire
