// CRC-32C (Castagnoli), as in iSCSI (RFC 3720 appendix B.4): hardware instruction where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace talweg {

// Continue a checksum: crc32c(b, n2, crc32c(a, n1)) is that of a followed by b. Start with 0.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

}  // namespace talweg
