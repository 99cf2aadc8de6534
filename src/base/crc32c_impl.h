// The two implementations behind crc32c(), named apart so that tests can hold them against each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace talweg {

// Slicing-by-8: eight table look-ups for eight bytes. Runs anywhere.
std::uint32_t crc32c_software(const void* data, std::size_t bytes, std::uint32_t seed);

// SSE 4.2's crc32 instruction on three interleaved streams. Only where crc32c_hardware_available().
std::uint32_t crc32c_hardware(const void* data, std::size_t bytes, std::uint32_t seed);
bool crc32c_hardware_available();

}  // namespace talweg
