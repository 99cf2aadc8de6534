// What `talweg perf` counts as wrong of sums whose vectors travelled as codes.
#include "study/coded_check.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernel/reduce.h"
#include "protocol/aggregation/coded_blocks.h"
#include "study/lonely_group.h"

namespace talweg::study {
namespace {

// One rank contributes all but what is in its residual afterwards.
struct CodedCall {
  static constexpr std::size_t kCount = 600;
  std::vector<float> in = std::vector<float>(kCount, 1.0F), residual = std::vector<float>(kCount, 0.5F), sum;
  LonelyGroup group;

  // `change` makes of the right sum and residual what is checked.
  template <class Change>
  std::uint64_t wrong(wire::AggregationFormat format, int racks, Change change) {
    const PerfCase c{Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1, kCount};
    std::vector<std::byte> input(kCount * sizeof(float));
    std::memcpy(input.data(), in.data(), input.size());
    residual.assign(kCount, 0.5F);
    const CodedCheck check(c, format, 344, reinterpret_cast<const std::byte*>(residual.data()), input);
    residual.assign(kCount, 0.25F);
    sum.assign(kCount, 1.25F);
    change();
    return check.count_wrong(group, reinterpret_cast<const std::byte*>(sum.data()), racks);
  }
};

TEST(CodedCheck, CountsWhatIsFurtherOffThanItsOwnCodingMayTake) {
  for (const auto& [format, top] : {std::pair(wire::AggregationFormat::block8, 127.0F),
                                    std::pair(wire::AggregationFormat::block4, 7.0F)}) {
    CodedCall call;
    const float unit = 1.25F / top;
    EXPECT_EQ(call.wrong(format, 1, [] {}), 0U);
    EXPECT_EQ(call.wrong(format, 1, [&] { call.sum[599] += 0.99F * unit; }), 0U);
    EXPECT_EQ(call.wrong(format, 1, [&] { call.sum[599] -= 1.01F * unit; }), 1U);
    EXPECT_EQ(call.wrong(format, 2, [&] { call.sum[599] -= 1.01F * unit; }), 0U) << "racks code, too";
    EXPECT_EQ(call.wrong(format, 2, [&] { call.sum[599] -= 3.5F * unit; }), 1U);
    // What was lost and is in no residual.
    EXPECT_EQ(call.wrong(format, 1, [&] { call.residual[3] = 0; }), 1U);
    EXPECT_EQ(call.wrong(format, 1, [&] { call.sum[0] = NAN; }), 1U);
    // A unit is that of the values with a scale in common: in the next block there are larger ones.
    const auto larger = [&](float off) {
      return call.wrong(format, 1, [&, by = off] {
        call.residual[400] = -98.5F;
        call.sum[400] = 100;
        call.sum[401] += by * unit;
        call.sum[343] += by * unit;
      });
    };
    EXPECT_EQ(larger(0.5F), 0U);
    EXPECT_EQ(larger(10), 1U);
  }
}

// Groups of threads whose all-reduces of doubles and words are those of all of them.
struct TogetherShared {
  explicit TogetherShared(std::size_t n) : calls(n), barrier(static_cast<std::ptrdiff_t>(n)) {}
  std::vector<const Call*> calls;
  std::barrier<> barrier;
};
class Together : public LonelyGroup {
 public:
  Together(TogetherShared& shared, std::size_t number) : shared_(shared), number_(number) {}
  WorkPtr start(const Call& call) override {
    shared_.calls[number_] = &call;
    shared_.barrier.arrive_and_wait();
    std::vector<std::byte> result(call.count * size_of(call.type));
    std::memcpy(result.data(), shared_.calls[0]->in, result.size());
    for (std::size_t r = 1; r < shared_.calls.size(); ++r)
      kernel::reduce_function(call.type, call.reduction)(
          result.data(), result.data(), static_cast<const std::byte*>(shared_.calls[r]->in), call.count);
    shared_.barrier.arrive_and_wait();
    std::memcpy(call.out, result.data(), result.size());
    shared_.barrier.arrive_and_wait();
    return LonelyGroup::start({.op = Collective::barrier});
  }

 private:
  TogetherShared& shared_;
  const std::size_t number_;
};

// What each rank says of the code of a sum in which the last one's values are so many times.
std::vector<std::uint64_t> wrong_where_the_last_is(float times, wire::AggregationFormat format, int racks) {
  constexpr std::size_t kOfAll = 16, kCount = 4000, kBlock = 256;
  const PerfCase c{Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1, kCount};
  std::vector<std::vector<float>> in(kOfAll, std::vector<float>(kCount));
  std::vector<float> sum(kCount), residual(kCount, 0.0F);
  const auto coded = [&](std::vector<float> values, std::uint64_t seed) {
    const kernel::GradientFormat code = protocol::gradient_format(format);
    std::vector<std::byte> data(kernel::encoded_bytes(code, kCount));
    kernel::encode(code, values.data(), kCount, data.data(), {true, seed, 0});
    kernel::decode(code, data.data(), kCount, values.data());
    return values;
  };
  for (std::size_t rack = 0, all = static_cast<std::size_t>(racks); rack < all; ++rack) {
    std::vector<float> of_rack(kCount);
    for (std::size_t r = rack; r < kOfAll; r += all)
      for (std::size_t i = 0; i < kCount; ++i) {
        // All ranks' have the same sign: their sum's unit of 4 bits is larger than each of them.
        in[r][i] =
            static_cast<float>((Random(r, i).uniform() + 1) * (Random(99, i).below(2) == 0 ? 0.5 : -0.5));
        of_rack[i] += in[r][i] * (r + 1 == kOfAll ? times : 1.0F);
      }
    if (racks > 1) of_rack = coded(of_rack, rack);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += of_rack[i];
  }
  sum = coded(sum, 1000);
  std::vector<std::uint64_t> wrong(kOfAll);
  std::vector<std::thread> threads;
  TogetherShared shared(kOfAll);
  for (std::size_t r = 0; r < kOfAll; ++r)
    threads.emplace_back([&, r] {
      Together group(shared, r);
      const auto bytes = std::as_bytes(std::span(in[r]));
      const CodedCheck check(c, format, kBlock, reinterpret_cast<const std::byte*>(residual.data()),
                             {bytes.begin(), bytes.end()});
      wrong[r] = check.count_wrong(group, reinterpret_cast<const std::byte*>(sum.data()), racks);
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

TEST(CodedCheck, FindsARankThatIsLostOrThereTwiceThoughItsValuesAreLessThanAUnit) {
  for (const auto format : {wire::AggregationFormat::block8, wire::AggregationFormat::block4})
    for (const int racks : {1, 2}) {
      for (const std::uint64_t wrong : wrong_where_the_last_is(1, format, racks)) EXPECT_EQ(wrong, 0U);
      for (const float times : {0.0F, 2.0F})
        EXPECT_EQ(wrong_where_the_last_is(times, format, racks).back(), 4000U) << times << ", " << racks;
    }
}

}  // namespace
}  // namespace talweg::study
