#include "kernel/gradient_code.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernel/arrays.h"
#include "kernel/gradient_block.h"
#include "kernel/instruction_sets.h"

namespace talweg::kernel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const std::vector<GradientFormat>& formats() {
  static const std::vector<GradientFormat> all{
      {Code::f32, 256},   {Code::f16, 64},  {Code::bf16, 256}, {Code::int8, 16},  {Code::int8, 256},
      {Code::int8, 1024}, {Code::int4, 16}, {Code::int4, 48},  {Code::int4, 256}, {Code::int4, 1024}};
  return all;
}

// Gradients as they are: most blocks finite, of all sizes, some with zeros, subnormals, infinities, NaN.
void fill_like_gradients(Array& array, Random& random) {
  if (random.below(4) == 0) return array.fill(random);
  const auto size = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.below(280)) - 150));
  for (std::size_t i = 0; i < array.count(); ++i) {
    auto value = static_cast<float>(random.uniform() * 2 - 1) * size;
    if (random.below(8) == 0) value = 0;
    if (random.below(600) == 0) value = random.below(2) == 0 ? kInfinity : -kInfinity;
    if (random.below(1200) == 0) value = kNaN;
    store(array.data(), i, value);
  }
}

// As Array, but bytes.
struct Encoded {
  Encoded(GradientFormat format, std::size_t count, std::size_t offset)
      : bytes(DataType::u8, encoded_bytes(format, count), offset) {}
  Array bytes;
};

// A NaN scale, half or float may be any NaN: what it decodes to is compared instead.
void expect_same(GradientFormat format, const Encoded& actual, const Encoded& expected, std::size_t count) {
  Array a(DataType::f32, count, 0), b(DataType::f32, count, 0);
  decode_scalar(format, actual.bytes.data(), count, a.data(), false);
  decode_scalar(format, expected.bytes.data(), count, b.data(), false);
  ASSERT_TRUE(same_elements(a, b)) << "of " << count;
}

TEST(GradientCode, EveryInstructionSetWritesAndReadsAsThePlainLoopsAtEveryLengthAndMisalignment) {
  Random random(31);
  with_every_instruction_set([&] {
    for (const GradientFormat format : formats()) {
      for (std::size_t count = 0; count < 1300; count += 1 + random.below(40)) {
        SCOPED_TRACE(testing::Message() << "code " << static_cast<int>(format.code) << ", blocks of "
                                        << format.block << ", " << count << " values");
        Array values(DataType::f32, count, random.below(8));
        Array residual(DataType::f32, count, random.below(8));
        fill_like_gradients(values, random);
        fill_like_gradients(residual, random);
        const Rounding rounding{random.below(2) == 0, random.next(), random.next()};

        Encoded plain(format, count, random.below(8)), expected = plain;
        encode(format, values.data(), count, plain.bytes.data(), rounding);
        encode_scalar(format, values.data(), nullptr, count, expected.bytes.data(), rounding);
        ASSERT_NO_FATAL_FAILURE(expect_same(format, plain, expected, count));

        Array kept = residual;
        encode_with_feedback(format, values.data(), residual.data(), count, plain.bytes.data(), rounding);
        encode_scalar(format, values.data(), kept.data(), count, expected.bytes.data(), rounding);
        ASSERT_NO_FATAL_FAILURE(expect_same(format, plain, expected, count));
        ASSERT_TRUE(same_elements(residual, kept));

        for (const bool add : {false, true}) {
          Array out = values, reference = values;
          (add ? decode_add : decode)(format, plain.bytes.data(), count, out.data());
          decode_scalar(format, plain.bytes.data(), count, reference.data(), add);
          ASSERT_TRUE(same_elements(out, reference));
        }
      }
    }
  });
}

TEST(GradientCode, AnyBytesDecodeToSomethingThatIsTheSameEverywhere) {
  Random random(32);
  with_every_instruction_set([&] {
    for (const GradientFormat format : formats()) {
      for (int i = 0; i < 40; ++i) {
        const std::size_t count = random.below(700);
        Encoded encoded(format, count, random.below(8));
        encoded.bytes.fill(random);
        Array out(DataType::f32, count, random.below(8)), expected(DataType::f32, count, 0);
        decode(format, encoded.bytes.data(), count, out.data());
        decode_scalar(format, encoded.bytes.data(), count, expected.data(), false);
        ASSERT_TRUE(same_elements(out, expected));
      }
    }
  });
}

std::vector<float> round_trip(GradientFormat format, const std::vector<float>& values,
                              Rounding rounding = {}) {
  std::vector<std::uint8_t> encoded(encoded_bytes(format, values.size()));
  encode(format, values.data(), values.size(), encoded.data(), rounding);
  std::vector<float> decoded(values.size());
  decode(format, encoded.data(), values.size(), decoded.data());
  return decoded;
}

TEST(GradientCode, IsAsSmallAsPromised) {
  EXPECT_EQ(encoded_bytes({Code::int8, 256}, 25600), 100u * 260);
  EXPECT_EQ(encoded_bytes({Code::int4, 256}, 25600), 100u * 132);
  EXPECT_EQ(encoded_bytes({Code::int4, 16}, 17), 8u + 9);
  EXPECT_EQ(encoded_bytes({Code::bf16, 256}, 5), 10u);
  EXPECT_EQ(encoded_bytes({Code::int8, 16}, 0), 0u);
}

TEST(GradientCode, ErrsByHalfAStepAtMostAndKeepsTheLargest) {
  Random random(33);
  for (const auto& [code, top] : {std::pair{Code::int8, 127.0f}, std::pair{Code::int4, 7.0f}}) {
    std::vector<float> values(64);
    for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
    values[20] = 2;
    const auto decoded = round_trip({code, 64}, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::abs(decoded[i] - values[i]), 1.0001f / top) << i;
    EXPECT_NEAR(decoded[20], 2, 1e-6);
  }
}

TEST(GradientCode, TinyBlocksBecomeZeroAndLargestNumbersStayFinite) {
  for (const Code code : {Code::int8, Code::int4}) {
    const GradientFormat format{code, 16};
    EXPECT_EQ(round_trip(format, std::vector<float>(16, 0x1p-119f)), std::vector<float>(16, 0.0f));
    EXPECT_EQ(round_trip(format, std::vector<float>(16, -0.0f)), std::vector<float>(16, 0.0f));
    EXPECT_NEAR(round_trip(format, std::vector<float>(16, kSmallest))[0] / kSmallest, 1, 1e-6);
    // Mantissas all ones, and their neighbours, at the end of the range.
    for (std::uint32_t bits = 0x7f7fffff; bits > 0x7f7fff00; --bits) {
      const auto largest = std::bit_cast<float>(bits);
      for (const float value : round_trip(format, {largest, -largest}))
        ASSERT_TRUE(std::isfinite(value)) << bits;
    }
  }
}

TEST(GradientCode, NaNFillsItsBlockAndInfinitiesStandAlone) {
  for (const Code code : {Code::int8, Code::int4}) {
    std::vector<float> values(48, 1.0f);
    values[3] = kNaN;
    values[4] = kInfinity;
    values[17] = kInfinity;
    values[18] = -kInfinity;
    const auto decoded = round_trip({code, 16}, values);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(decoded[i])) << i;
    for (std::size_t i = 16; i < 32; ++i)
      EXPECT_EQ(decoded[i], i == 17 ? kInfinity : i == 18 ? -kInfinity : 0.0f) << i;
    for (std::size_t i = 32; i < 48; ++i) EXPECT_NEAR(decoded[i], 1, 1e-6) << i;
  }
}

TEST(GradientCode, AStepWithNaNLeavesTheResidualAsItWas) {
  for (const GradientFormat format : formats()) {
    std::vector<float> values(16, kNaN), residual(16, 0.25f);
    std::vector<std::uint8_t> encoded(encoded_bytes(format, 16));
    encode_with_feedback(format, values.data(), residual.data(), 16, encoded.data(), {});
    EXPECT_EQ(residual, std::vector<float>(16, 0.25f));
  }
}

TEST(GradientCode, StochasticRoundingIsRightOnAverageAndLeavesWholeCodesAlone) {
  const GradientFormat format{Code::int4, 1024};
  std::vector<float> values(1024, 0.3f);  // 2.1 steps
  values[0] = 1;
  values[1] = -1;
  double sum = 0;
  bool both[2] = {};
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const auto decoded = round_trip(format, values, {true, seed, 0});
    EXPECT_FLOAT_EQ(decoded[0], 1);
    EXPECT_FLOAT_EQ(decoded[1], -1);
    for (std::size_t i = 2; i < decoded.size(); ++i) {
      sum += static_cast<double>(decoded[i]);
      both[decoded[i] > 0.3f] = true;
    }
  }
  // 65408 draws of which a tenth goes up, by 1/7: the mean's deviation is 0.00017.
  EXPECT_NEAR(sum / (64 * 1022), 0.3, 0.0008);
  EXPECT_TRUE(both[0] && both[1]);
}

TEST(GradientCode, AnArrayMayBeEncodedInPieces) {
  const GradientFormat format{Code::int8, 32};
  Random random(34);
  std::vector<float> values(160);
  for (float& value : values) value = static_cast<float>(random.uniform());
  std::vector<std::uint8_t> whole(encoded_bytes(format, 160)), pieces(whole.size());
  encode(format, values.data(), 160, whole.data(), {true, 5, 100});
  encode(format, values.data(), 64, pieces.data(), {true, 5, 100});
  encode(format, values.data() + 64, 96, pieces.data() + encoded_bytes(format, 64), {true, 5, 164});
  EXPECT_EQ(whole, pieces);
}

// What is sent over many steps is the sum of the gradients but for one residual: nothing is lost.
TEST(GradientCode, FeedbackDrivesTheMeanErrorToZero) {
  const GradientFormat format{Code::int4, 64};
  Random random(35);
  std::vector<float> gradient(64), residual(64), decoded(64);
  for (float& value : gradient) value = static_cast<float>(random.uniform() - 0.5);
  std::vector<std::uint8_t> encoded(encoded_bytes(format, 64));
  const auto error_after = [&](int steps) {
    std::fill(residual.begin(), residual.end(), 0.0f);
    std::vector<double> sent(64);
    for (int step = 0; step < steps; ++step) {
      encode_with_feedback(format, gradient.data(), residual.data(), 64, encoded.data(), {});
      decode(format, encoded.data(), 64, decoded.data());
      for (std::size_t i = 0; i < 64; ++i) sent[i] += static_cast<double>(decoded[i]);
    }
    double worst = 0;
    for (std::size_t i = 0; i < 64; ++i)
      worst = std::max(worst, std::abs(sent[i] / steps - static_cast<double>(gradient[i])));
    return worst;
  };
  EXPECT_LT(error_after(1000), 1e-4);
  EXPECT_GT(error_after(1), 1e-2);
}

}  // namespace
}  // namespace talweg::kernel
