#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/random.h"

namespace talweg {
namespace {

// RFC 3720, B.4, and the check value of the catalogues ("123456789").
TEST(Crc32c, GivesTheValuesOfRfc3720) {
  std::array<unsigned char, 32> data{};
  EXPECT_EQ(crc32c(data.data(), 32), 0x8A9136AAu);
  data.fill(0xff);
  EXPECT_EQ(crc32c(data.data(), 32), 0x62A8AB43u);
  for (unsigned i = 0; i < 32; ++i) data[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(crc32c(data.data(), 32), 0x46DD794Eu);
  std::reverse(data.begin(), data.end());
  EXPECT_EQ(crc32c(data.data(), 32), 0x113FDB5Cu);
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
}

TEST(Crc32c, IsTheSeedForNoBytes) {
  EXPECT_EQ(crc32c(nullptr, 0), 0u);
  EXPECT_EQ(crc32c(nullptr, 0, 0x12345678), 0x12345678u);
}

// The last few lengths cross the block sizes of the interleaved streams several times.
TEST(Crc32c, AgreesBetweenHardwareAndSoftwareAtAnyLengthAndOffset) {
  if (!crc32c_hardware_available()) GTEST_SKIP() << "this processor has no crc32 instruction";
  Random random(7);
  std::vector<unsigned char> data(40'000);
  for (auto& byte : data) byte = static_cast<unsigned char>(random.next());
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t limit = i % 10 == 0 ? 32'000 : 1'000;
    const std::size_t bytes = random.below(limit), offset = random.below(64);
    const auto seed = static_cast<std::uint32_t>(random.next());
    ASSERT_EQ(crc32c_hardware(data.data() + offset, bytes, seed),
              crc32c_software(data.data() + offset, bytes, seed))
        << bytes << " bytes at " << offset;
  }
}

TEST(Crc32c, ContinuesAcrossAnySplit) {
  Random random(8);
  std::vector<unsigned char> data(10'000);
  for (auto& byte : data) byte = static_cast<unsigned char>(random.next());
  const std::uint32_t whole = crc32c(data.data(), data.size());
  for (int i = 0; i < 200; ++i) {
    const std::size_t head = random.below(data.size() + 1);
    ASSERT_EQ(crc32c(data.data() + head, data.size() - head, crc32c(data.data(), head)), whole) << head;
  }
}

TEST(Crc32c, NoticesEverySingleBitFlip) {
  std::array<unsigned char, 512> data{};
  const std::uint32_t before = crc32c(data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
    ASSERT_NE(crc32c(data.data(), data.size()), before) << bit;
    data[bit / 8] = 0;
  }
}

}  // namespace
}  // namespace talweg
