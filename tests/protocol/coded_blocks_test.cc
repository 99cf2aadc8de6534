// Blocks of floats that travel as codes of 8 or 4 bits: from a worker, through a switch, and back.
#include "protocol/aggregation/coded_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernel/gradient_block.h"
#include "protocol/aggregation/tensor.h"
#include "protocol/aggregation/worker.h"
#include "protocol/aggregation_loss_world.h"
#include "protocol/one_switch.h"
#include "protocol/unpacked_message.h"

namespace talweg::protocol {
namespace {

constexpr AggregationFormat kCodes[] = {AggregationFormat::block8, AggregationFormat::block4};

double top_code_of(AggregationFormat format) {
  return format == AggregationFormat::block8 ? 127 : 7;
}

std::vector<float> drawn(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(random.uniform() * 2 - 1);
  return values;
}

Sum coded_sum(AggregationFormat format, const std::vector<float>& in, std::vector<float>& out,
              std::vector<float>* residual) {
  Sum sum{reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), in.size(),
          format};
  if (residual != nullptr) sum.tolerance.residual = reinterpret_cast<std::byte*>(residual->data());
  return sum;
}

std::vector<float> decoded(AggregationFormat format, const std::vector<std::byte>& data, std::size_t count) {
  std::vector<float> values(count);
  kernel::decode(gradient_format(format), data.data(), count, values.data());
  return values;
}

JobTerms coded_terms(std::uint16_t workers, std::uint16_t block = 512) {
  JobTerms terms = terms_of(workers);
  terms.columns = 1;
  terms.block = block;
  return terms;
}

std::vector<std::byte> contribution_of(AggregationFormat format, const std::vector<std::byte>& data,
                                       std::uint16_t count, bool version = false) {
  std::vector<std::byte> buffer(8192);
  wire::AggregationWriter writer(buffer);
  writer.begin(format);
  AggregationEntry entry{0, kNeverNext, wire::kZeroExponent, count};
  entry.data = true;
  entry.version = version;
  std::memcpy(writer.add(entry), data.data(), data.size());
  return {writer.payload().begin(), writer.payload().end()};
}

// One block of each worker, summed in the order given; the result's data.
std::vector<std::byte> summed(OneSwitch& box, std::uint32_t operation, AggregationFormat format,
                              const std::vector<std::vector<std::byte>>& parts, std::uint16_t count,
                              const std::vector<std::uint16_t>& order) {
  std::vector<Said> said;
  for (const std::uint16_t worker : order)
    said = box.hand(box.header(worker, operation),
                    contribution_of(format, parts[worker], count, operation % 2 == 0));
  EXPECT_EQ(said.size(), 1U);
  if (said.size() != 1 || said[0].type() != AggregationType::result) return {};
  EXPECT_EQ(said[0].to, To::all);
  return said[0].data.at(0);
}

std::vector<std::byte> coded_by_worker(AggregationFormat format, const std::vector<float>& values,
                                       std::uint16_t worker, std::uint32_t operation = 1) {
  std::vector<float> out(values.size());
  Sum sum = coded_sum(format, values, out, nullptr);
  sum.block = static_cast<std::uint16_t>(values.size());
  SummedTensor tensor;
  tensor.reset(sum, 1, coding_seed(operation, Coder::worker, 0, worker));
  std::vector<std::byte> data(wire::data_bytes(format, values.size()));
  tensor.write(0, wire::kZeroExponent, data.data());
  return data;
}

TEST(CodedBlocks, HaveTheSizesOfTheKernelsCodes) {
  for (const AggregationFormat format : kCodes)
    for (std::size_t count = 0; count < 1030; ++count)
      ASSERT_EQ(wire::data_bytes(format, count), kernel::encoded_bytes(gradient_format(format), count))
          << count;
  EXPECT_EQ(wire::data_bytes(AggregationFormat::block8, 344), 2U * 4 + 344);
  EXPECT_EQ(wire::most_elements(AggregationFormat::block8, 1), 0U) << "a scale has no room";
  EXPECT_EQ(wire::most_elements(AggregationFormat::block4, 2), 2U);
}

TEST(CodedBlocks, OfAWorkerLeaveToTheBitWhatTheyLostInItsResidual) {
  for (const AggregationFormat format : kCodes)
    for (const bool in_place : {false, true}) {
      constexpr std::size_t kCount = 700;  // blocks of 256, the last of them shorter
      std::vector<float> in = drawn(1, kCount), residual = drawn(2, kCount), out(kCount, 7.0F);
      for (float& x : residual) x *= 0.01F;
      const std::vector<float> input = in, before = residual;
      std::vector<float>& result = in_place ? in : out;
      SummedTensor tensor;
      tensor.reset(coded_sum(format, in, result, &residual), 3);
      ASSERT_EQ(tensor.blocks(), 3U);
      for (std::uint64_t b = 0; b < tensor.blocks(); ++b) {
        const std::size_t first = b * 256, count = tensor.count_of(b);
        std::vector<std::byte> data(wire::data_bytes(format, count)), again = data;
        tensor.write(b, wire::kZeroExponent, data.data());
        tensor.write(b, wire::kZeroExponent, again.data());
        EXPECT_EQ(data, again) << "what is sent again is what was sent";
        const std::vector<float> sent = decoded(format, data, count);
        tensor.remember(b, false);
        for (std::size_t i = 0; i < count; ++i) {
          const float both = input[first + i] + before[first + i];
          ASSERT_EQ(residual[first + i], both - sent[i]);
        }
        tensor.accept(b, wire::kZeroExponent, data);
        EXPECT_EQ(std::vector<float>(result.begin() + static_cast<std::ptrdiff_t>(first),
                                     result.begin() + static_cast<std::ptrdiff_t>(first + count)),
                  sent);
      }
      if (!in_place) {
        EXPECT_EQ(in, input);
      }
    }
}

TEST(CodedBlocks, ThatAreMissingInASumAreAllInTheResidual) {
  std::vector<float> in = drawn(1, 256), residual = drawn(2, 256), out(256);
  const std::vector<float> before = residual;
  SummedTensor tensor;
  tensor.reset(coded_sum(AggregationFormat::block4, in, out, &residual), 3);
  tensor.remember(0, true);
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(residual[i], in[i] + before[i]);
}

TEST(CodedBlocks, ThatAreNoNumbersInOneSumDoNotSpoilThoseToCome) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const AggregationFormat format : kCodes)
    for (const float odd : {kInf, -kInf, std::nanf("")})
      for (const bool was_odd : {false, true})  // before the sum, or comes with it
        for (const bool missing : {true, false}) {
          const std::vector<float> finite = drawn(1, 256), before = drawn(2, 256);
          std::vector<float> in = finite, residual = before, out(256);
          (was_odd ? residual : in)[5] = odd;
          SummedTensor tensor;
          tensor.reset(coded_sum(format, in, out, &residual), 3);
          std::vector<std::byte> data(wire::data_bytes(format, 256));
          tensor.write(0, wire::kZeroExponent, data.data());
          tensor.remember(0, missing);
          for (std::size_t i = 0; i < 256; ++i) ASSERT_TRUE(std::isfinite(residual[i])) << i;
          EXPECT_EQ(residual[5], was_odd ? 0 : before[5]);
          if (missing) {
            EXPECT_EQ(residual[6], in[6] + before[6]) << "beside it nothing is lost";
          }
          const std::vector<float> kept = residual;
          tensor.reset(coded_sum(format, finite, out, &residual), 3);
          tensor.write(0, wire::kZeroExponent, data.data());
          const std::vector<float> sent = decoded(format, data, 256);
          for (std::size_t i = 0; i < 256; ++i)
            ASSERT_NEAR(sent[i], finite[i] + kept[i], 3.5 / 2 / top_code_of(format)) << i;
        }
}

TEST(CodedBlocks, OfSparseTensorsTravelWhereTheResidualHoldsSomething) {
  for (const std::uint16_t lanes : std::initializer_list<std::uint16_t>{1, 2}) {
    std::vector<float> in(8 * 16, 0.0F), residual = in, out = in;
    in[16] = 1;
    residual[4 * 16] = 1;
    Sum sum = coded_sum(AggregationFormat::block8, in, out, &residual);
    sum.block = 16;
    sum.sparse = true;
    sum.lanes = lanes;
    EXPECT_EQ(wrong_tolerance(sum), "");
    SummedTensor tensor;
    for (sum.lane = 0; sum.lane < lanes; ++sum.lane) {
      tensor.reset(sum, 2);
      for (std::uint64_t b = 0; b < tensor.blocks(); ++b) {
        const std::uint64_t block = sum.lane + b * lanes;
        EXPECT_EQ(tensor.owns(b), block == 1 || block == 4) << block;
      }
    }
    sum.lane = 0;
    sum.tolerance.ppm = 1;
    EXPECT_NE(wrong_tolerance(sum), "") << "all agree on what comes next";
  }
}

// How many random numbers of the first are those of the second, `shift` elements further on.
std::size_t alike(std::uint64_t first, std::uint64_t second, std::int64_t shift) {
  std::size_t count = 0;
  for (std::uint32_t i = 100; i < 1100; ++i)
    count += kernel::random_fraction(first, i) ==
             kernel::random_fraction(second, i + static_cast<std::uint32_t>(shift));
  return count;
}

TEST(CodedBlocks, RandomNumbersOfTwoCodersAreNoShiftsOfEachOther) {
  std::vector<std::uint64_t> seeds;
  for (const Coder coder : {Coder::top, Coder::rack, Coder::worker})
    for (const std::uint16_t rack : std::initializer_list<std::uint16_t>{0, 1})
      for (const std::uint16_t number : std::initializer_list<std::uint16_t>{0, 1, 2})
        for (const std::uint32_t operation : {1U, 2U})
          seeds.push_back(coding_seed(operation, coder, rack, number));
  for (std::size_t a = 0; a < seeds.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      for (std::int64_t shift = -4; shift <= 4; ++shift)
        ASSERT_LE(alike(seeds[a], seeds[b], shift), 2U) << a << ", " << b << ", by " << shift;
      // What makes the kernel begin with the same number.
      const auto low = static_cast<std::int64_t>(seeds[a] & 0xffffffff) - (seeds[b] & 0xffffffff);
      ASSERT_LE(alike(seeds[a], seeds[b], low), 2U) << a << ", " << b;
    }
}

// What a worker sends first, of 64 values without a residual.
std::vector<std::byte> first_sent(std::uint16_t rack, std::uint16_t number) {
  struct Sink : DatagramSink {
    void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
      data = UnpackedMessage(header, payload).data.at(0);
    }
    std::vector<std::byte> data;
  } sink;
  WorkerTerms terms;
  terms.worker = number;
  terms.workers = 4;
  terms.rack = rack;
  const std::vector<float> in = drawn(1, 64);
  std::vector<float> out(64);
  AggregationWorker worker(terms, sink);
  worker.start(coded_sum(AggregationFormat::block4, in, out, nullptr), 1, 1'000'000'000, 0);
  return sink.data;
}

TEST(CodedBlocks, OfTheSameValuesAreRoundedAnotherWayByEachWorkerOfEachRackAndEachThreadOfASwitch) {
  constexpr AggregationFormat format = AggregationFormat::block4;
  std::vector<std::vector<std::byte>> made;
  for (const std::uint16_t rack : std::initializer_list<std::uint16_t>{0, 1})
    for (const std::uint16_t number : std::initializer_list<std::uint16_t>{0, 1})
      made.push_back(first_sent(rack, number));
  EXPECT_EQ(first_sent(1, 1), made.back()) << "and the same way again";
  for (const bool below : {false, true})
    for (const std::uint16_t rack : std::initializer_list<std::uint16_t>{0, 1})
      for (const std::uint16_t thread : std::initializer_list<std::uint16_t>{0, 1}) {
        if (!below && rack > 0) continue;
        JobTerms terms = coded_terms(2);
        if (below) terms.above = SwitchAbove{rack, 1000};
        terms.self = static_cast<std::uint16_t>(2 + thread);
        OneSwitch box(terms);
        std::vector<Said> said;
        for (const std::uint16_t w : std::initializer_list<std::uint16_t>{0, 1})
          said = box.hand(box.header(w, 1),
                          contribution_of(format, coded_by_worker(format, drawn(w, 64), w), 64));
        ASSERT_EQ(said.size(), 1U);
        made.push_back(said[0].data.at(0));
      }
  for (std::size_t a = 0; a < made.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(made[a], made[b]) << a << ", " << b;
}

// Three workers, in two orders.
TEST(CodedBlocks, AreSummedInFloatAndComeBackAsTheCodeOfTheSum) {
  constexpr std::uint16_t kCount = 300;
  for (const AggregationFormat format : kCodes)
    for (const bool ordered : {false, true}) {
      JobTerms terms = coded_terms(3);
      terms.ordered = ordered;
      OneSwitch box(terms);
      std::vector<std::vector<std::byte>> parts;
      for (std::uint16_t w = 0; w < 3; ++w) parts.push_back(coded_by_worker(format, drawn(w + 1, kCount), w));
      const std::vector<std::byte> result = summed(box, 1, format, parts, kCount, {2, 0, 1});
      std::vector<float> sum(kCount);
      for (const std::size_t w :
           ordered ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{2, 0, 1})
        kernel::decode_add(gradient_format(format), parts[w].data(), kCount, sum.data());
      std::vector<std::byte> expected(result.size());
      kernel::encode(gradient_format(format), sum.data(), kCount, expected.data(),
                     at_random(coding_seed(1, Coder::top, 0, terms.self), 0));
      EXPECT_EQ(result, expected);
      // Whoever asks again has the same bytes.
      const auto again = box.hand(box.header(1, 1), contribution_of(format, parts[1], kCount));
      ASSERT_EQ(again.size(), 1U);
      EXPECT_EQ(again[0].data.at(0), expected);
      OneSwitch other(terms);
      if (ordered) {
        EXPECT_EQ(summed(other, 1, format, parts, kCount, {0, 1, 2}), expected);
      }
      EXPECT_NE(summed(other, 2, format, parts, kCount, {2, 0, 1}), expected)
          << "the next operation rounds with other numbers";
      double most = 0;
      for (const float x : sum) most = std::max(most, std::abs(static_cast<double>(x)));
      const std::vector<float> values = decoded(format, result, kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_LE(std::abs(static_cast<double>(values[i] - sum[i])), most / top_code_of(format) * 1.00001);
    }
}

TEST(CodedBlocks, OfAnotherFormatThanTheRoundsAreRefused) {
  OneSwitch box(coded_terms(2));
  const std::vector<float> values = drawn(1, 64);
  box.hand(box.header(0, 1), contribution_of(AggregationFormat::block8,
                                             coded_by_worker(AggregationFormat::block8, values, 0), 64));
  const auto said = box.hand(
      box.header(1, 1),
      contribution_of(AggregationFormat::block4, coded_by_worker(AggregationFormat::block4, values, 1), 64));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].type(), AggregationType::refusal);
  EXPECT_EQ(said[0].refusal.reason, wire::AggregationReason::disagreement);
}

TEST(CodedBlocks, OfWhatIsNoNumberOrNothingComeBackAsThatInTheirScalesPart) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::uint16_t kCount = 512;  // some scales
  for (const AggregationFormat format : kCodes) {
    const std::size_t of_scale = wire::coded_elements(format);
    const std::size_t first = 300 / of_scale * of_scale;
    OneSwitch box(coded_terms(2));
    std::vector<float> a = drawn(1, kCount), b = drawn(2, kCount);
    a[3] = std::nanf("");
    auto sum = decoded(format,
                       summed(box, 1, format, {coded_by_worker(format, a, 0), coded_by_worker(format, b, 1)},
                              kCount, {0, 1}),
                       kCount);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(std::isnan(sum[i]), i < of_scale) << i;
    a = drawn(1, kCount);
    a[300] = kInf;
    b[301] = -kInf;
    sum = decoded(format,
                  summed(box, 2, format, {coded_by_worker(format, a, 0), coded_by_worker(format, b, 1)},
                         kCount, {0, 1}),
                  kCount);
    EXPECT_EQ(sum[300], kInf);
    EXPECT_EQ(sum[301], -kInf);
    for (std::size_t i = first; i < first + of_scale; ++i)
      EXPECT_TRUE(i == 300 || i == 301 || sum[i] == 0) << i;
    EXPECT_TRUE(std::isfinite(sum[0]));
    // Infinities that cancel are none.
    b[300] = -kInf;
    sum = decoded(format,
                  summed(box, 3, format, {coded_by_worker(format, a, 0), coded_by_worker(format, b, 1)},
                         kCount, {0, 1}),
                  kCount);
    EXPECT_TRUE(std::isnan(sum[300]));
    EXPECT_TRUE(std::isfinite(sum[0]));
    const std::vector<float> zeros(kCount, -0.0F), tiny(kCount, 0x1p-120F);
    sum =
        decoded(format,
                summed(box, 4, format, {coded_by_worker(format, zeros, 0), coded_by_worker(format, tiny, 1)},
                       kCount, {0, 1}),
                kCount);
    for (const float x : sum) EXPECT_EQ(std::bit_cast<std::uint32_t>(x), 0U);
    // The shortest there are.
    for (const std::uint16_t count : std::initializer_list<std::uint16_t>{1, 2, 3}) {
      OneSwitch small(coded_terms(2, 4));
      const std::vector<float> ones(count, 1.0F);
      sum =
          decoded(format,
                  summed(small, 1, format,
                         {coded_by_worker(format, ones, 0), coded_by_worker(format, ones, 1)}, count, {0, 1}),
                  count);
      EXPECT_EQ(sum, std::vector<float>(count, 2.0F));
    }
  }
}

// A rack codes its sum once; what comes from above it passes on as it is.
TEST(CodedBlocks, OfASwitchAboveArePassedOnToTheBit) {
  constexpr std::uint16_t kCount = 256;
  for (const AggregationFormat format : kCodes) {
    JobTerms terms = coded_terms(2);
    terms.above = SwitchAbove{1, 1000};
    OneSwitch box(terms);
    const std::vector<std::byte> parts[] = {coded_by_worker(format, drawn(1, kCount), 0),
                                            coded_by_worker(format, drawn(2, kCount), 1)};
    box.hand(box.header(0, 1), contribution_of(format, parts[0], kCount));
    const auto up = box.hand(box.header(1, 1), contribution_of(format, parts[1], kCount));
    ASSERT_EQ(up.size(), 1U);
    EXPECT_EQ(up[0].to, To::above);
    std::vector<float> sum(kCount);
    for (const auto& part : parts)
      kernel::decode_add(gradient_format(format), part.data(), kCount, sum.data());
    std::vector<std::byte> expected(wire::data_bytes(format, kCount));
    kernel::encode(gradient_format(format), sum.data(), kCount, expected.data(),
                   at_random(coding_seed(1, Coder::rack, 1, terms.self), 0));
    EXPECT_EQ(up[0].data.at(0), expected);
    box.now_ns = 2000;
    const auto once_more = box.hand(box.header(1, 1), contribution_of(format, parts[1], kCount));
    ASSERT_EQ(once_more.size(), 1U);
    EXPECT_EQ(once_more[0].to, To::above);
    EXPECT_EQ(once_more[0].data.at(0), expected) << "sent up again: the same bytes";

    // No code has these bytes, whoever makes them: they are not made again.
    std::vector<std::byte> odd = expected;
    odd[10] = std::byte{0x80};
    wire::DatagramHeader h = box.header(0, 1);
    h.type = static_cast<std::uint8_t>(AggregationType::result);
    const auto down = unpacked(box.box.on_above(h, contribution_of(format, odd, kCount), box.now_ns));
    ASSERT_EQ(down.size(), 1U);
    EXPECT_EQ(down[0].type(), AggregationType::result);
    EXPECT_EQ(down[0].data.at(0), odd);
    const auto repeated = box.hand(box.header(0, 1), contribution_of(format, parts[0], kCount));
    ASSERT_EQ(repeated.size(), 1U);
    EXPECT_EQ(repeated[0].data.at(0), odd);
  }
}

// What is a third of a unit beside the largest value would never come where rounding is to nearest both ways.
TEST(CodedBlocks, SumsOfManyCallsComeToWhatWentInWithAResidualOrWithout) {
  constexpr std::size_t kCount = 256;
  constexpr int kCalls = 2000;
  for (const AggregationFormat format : kCodes)
    for (const bool feedback : {false, true}) {
      OneSwitch box(coded_terms(2));
      std::vector<std::vector<float>> in(2), residuals(2, std::vector<float>(kCount, 0.0F));
      std::vector<float> out(kCount);
      for (auto& values : in) {
        values.assign(kCount, static_cast<float>(0.3 / top_code_of(format)));
        for (std::size_t i = 0; i < kCount; i += wire::coded_elements(format)) values[i] = 1;
      }
      SummedTensor tensors[2];
      std::vector<double> all(kCount);
      for (std::uint32_t call = 1; call <= kCalls; ++call) {
        std::vector<std::vector<std::byte>> parts(2,
                                                  std::vector<std::byte>(wire::data_bytes(format, kCount)));
        for (std::uint16_t w = 0; w < 2; ++w) {
          tensors[w].reset(coded_sum(format, in[w], out, feedback ? &residuals[w] : nullptr), 2,
                           coding_seed(call, Coder::worker, 0, w));
          tensors[w].write(0, wire::kZeroExponent, parts[w].data());
          tensors[w].remember(0, false);
        }
        std::vector<Said> said;
        for (std::uint16_t w = 0; w < 2; ++w) {
          const bool version = call % 2 == 1;
          said = box.hand(box.header(w, call), contribution_of(format, parts[w], kCount, version));
        }
        ASSERT_EQ(said.size(), 1U);
        tensors[0].accept(0, wire::kZeroExponent, said[0].data.at(0));
        for (std::size_t i = 0; i < kCount; ++i) all[i] += static_cast<double>(out[i]);
      }
      // One unit of a sum in random steps, and of the workers without a residual.
      const double unit = 2 / top_code_of(format);
      for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_NEAR(all[i] / kCalls, 2.0 * static_cast<double>(in[0][i]), 5 * unit / std::sqrt(kCalls)) << i;
    }
}

// With parts that are missing, losses, copies and workers that stop, from seeds.
TEST(CodedBlocks, WhatAResidualDoesNotHoldIsInTheSumWhateverIsLostOrMissing) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    AggregationLossOptions options = AggregationLossWorld::drawn(seed);
    options.residual = true;
    options.format = kCodes[seed % 2];
    AggregationLossWorld world(options);
    world.run();
    ASSERT_TRUE(world.problems().empty()) << "seed " << seed << ": " << world.problems().front();
  }
}

}  // namespace
}  // namespace talweg::protocol
