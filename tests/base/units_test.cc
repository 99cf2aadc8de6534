#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/random.h"
#include "talweg/error.h"

namespace talweg {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

template <typename Parse>
std::string refusal(Parse parse, std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Units, ReadsSizesWithBinaryAndDecimalPrefixes) {
  EXPECT_EQ(parse_bytes("4096").value, 4096);
  EXPECT_EQ(parse_bytes("64K").value, 65536);
  EXPECT_EQ(parse_bytes("64KiB").value, 65536);
  EXPECT_EQ(parse_bytes(" 1 MiB ").value, 1 << 20);
  EXPECT_EQ(parse_bytes("1.5M").value, 3 << 19);
  EXPECT_EQ(parse_bytes("2g").value, 2LL << 30);
  EXPECT_EQ(parse_bytes("10 kB").value, 10'000);
  EXPECT_EQ(parse_bytes("10MB").value, 10'000'000);
  EXPECT_EQ(parse_bytes("0.1 GB").value, 100'000'000);
  EXPECT_EQ(parse_bytes("0").value, 0);
  EXPECT_EQ(parse_bytes("9223372036854775807").value, kMax);
}

TEST(Units, RefusesSizesThatAreNotAWholeNumberOfBytes) {
  for (const char* text : {"", "K", "-1", "1.5", "0.3K", "1 XB", "1K1", "nan", "inf", "1e30",
                           "9223372036854775808", "9007199254740992K", "0x10"}) {
    EXPECT_THAT(refusal(parse_bytes, text), HasSubstr("size \"" + std::string(text) + "\": expected"))
        << text;
  }
}

TEST(Units, ReadsBandwidthsInBitsAndInBytes) {
  EXPECT_EQ(parse_bandwidth("1Gbit/s").bits_per_second, 1e9);
  EXPECT_EQ(parse_bandwidth("200 Mbit/s").bits_per_second, 2e8);
  EXPECT_EQ(parse_bandwidth("10G").bits_per_second, 1e10);
  EXPECT_EQ(parse_bandwidth("1gbit").bits_per_second, 1e9);
  EXPECT_EQ(parse_bandwidth("2.5 Gbps").bits_per_second, 2.5e9);
  EXPECT_EQ(parse_bandwidth("25GB/s").bits_per_second, 2e11);
  EXPECT_EQ(parse_bandwidth("1 MiB/s").bits_per_second, 8.0 * (1 << 20));
  EXPECT_EQ(parse_bandwidth("9600").bits_per_second, 9600);
  EXPECT_EQ(parse_bandwidth("1e6").bits_per_second, 1e6);
}

TEST(Units, RefusesBandwidthsThatAreNotAboveZero) {
  for (const char* text :
       {"", "0", "0 Gbit/s", "-1G", "fast", "1 Gbyte", "inf", "nan", "1e400", "1e308G", "1 s"}) {
    EXPECT_THAT(refusal(parse_bandwidth, text),
                HasSubstr("bandwidth \"" + std::string(text) + "\": expected"))
        << text;
  }
}

TEST(Units, ReadsTimesWithTheirUnit) {
  EXPECT_EQ(parse_nanoseconds("100ns").value, 100);
  EXPECT_EQ(parse_nanoseconds("30us").value, 30'000);
  EXPECT_EQ(parse_nanoseconds("30 \u00b5s").value, 30'000);
  EXPECT_EQ(parse_nanoseconds("1.5 ms").value, 1'500'000);
  EXPECT_EQ(parse_nanoseconds("2s").value, 2'000'000'000);
  EXPECT_EQ(parse_nanoseconds("0.1us").value, 100);
  EXPECT_EQ(parse_nanoseconds("0").value, 0);
}

TEST(Units, RefusesTimesWithoutAUnitOrBelowTheNanosecond) {
  for (const char* text : {"", "5", "-1us", "1.5ns", "1 m", "1h", "inf s", "9223372036854775807us"}) {
    EXPECT_THAT(refusal(parse_nanoseconds, text), HasSubstr("time \"" + std::string(text) + "\": expected"))
        << text;
  }
}

TEST(Units, PrintsTheLargestUnitThatIsExactAndShort) {
  EXPECT_EQ(to_string(Bytes{0}), "0 B");
  EXPECT_EQ(to_string(Bytes{65536}), "64 KiB");
  EXPECT_EQ(to_string(Bytes{3 << 19}), "1.5 MiB");
  EXPECT_EQ(to_string(Bytes{1025}), "1025 B");
  EXPECT_EQ(to_string(Bandwidth{2e8}), "200 Mbit/s");
  EXPECT_EQ(to_string(Bandwidth{2.5e9}), "2.5 Gbit/s");
  EXPECT_EQ(to_string(Bandwidth{9600}), "9.6 kbit/s");
  EXPECT_EQ(to_string(Bandwidth{0.5}), "0.5 bit/s");
  EXPECT_EQ(to_string(Nanoseconds{30'000}), "30 us");
  EXPECT_EQ(to_string(Nanoseconds{1'250'000}), "1.25 ms");
  EXPECT_EQ(to_string(Nanoseconds{1'002'000'000}), "1.002 s");
  EXPECT_EQ(to_string(Nanoseconds{1'234'567}), "1234.567 us");
  EXPECT_EQ(to_string(Nanoseconds{-1'500}), "-1.5 us");
}

TEST(Units, ReadsBackExactlyWhatItPrints) {
  Random random(5);
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<std::int64_t>(random.next() >> (1 + random.below(63)));
    ASSERT_EQ(parse_bytes(to_string(Bytes{value})).value, value);
    ASSERT_EQ(parse_nanoseconds(to_string(Nanoseconds{value})).value, value);
    const double rate = (random.uniform() + 1e-9) * static_cast<double>(value + 1);
    ASSERT_EQ(parse_bandwidth(to_string(Bandwidth{rate})).bits_per_second, rate);
  }
  EXPECT_EQ(parse_bytes(to_string(Bytes{kMax})).value, kMax);
  EXPECT_EQ(parse_nanoseconds(to_string(Nanoseconds{kMax})).value, kMax);
}

}  // namespace
}  // namespace talweg
