// CRC-32C (Castagnoli), as in iSCSI (RFC 3720 appendix B.4): hardware instruction where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace talweg {

// Continue a checksum: crc32c(b, n2, crc32c(a, n1)) is that of a followed by b. Start with 0.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

// The two implementations behind it, named apart so that tests can hold them against each other.
// Slicing-by-8: eight table look-ups for eight bytes. Runs anywhere.
std::uint32_t crc32c_software(const void* data, std::size_t bytes, std::uint32_t seed);

// SSE 4.2's crc32 instruction on three interleaved streams. Only where crc32c_hardware_available().
std::uint32_t crc32c_hardware(const void* data, std::size_t bytes, std::uint32_t seed);
bool crc32c_hardware_available();

}  // namespace talweg
