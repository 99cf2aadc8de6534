#include "base/crc32c.h"

#include "base/crc32c_impl.h"

namespace talweg {

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  static const bool hardware = crc32c_hardware_available();
  return hardware ? crc32c_hardware(data, bytes, seed) : crc32c_software(data, bytes, seed);
}

}  // namespace talweg
