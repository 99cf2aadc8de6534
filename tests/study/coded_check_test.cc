// What `talweg perf` counts as wrong of sums whose vectors travelled as codes.
#include "study/coded_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

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

}  // namespace
}  // namespace talweg::study
