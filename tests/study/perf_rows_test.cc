// `talweg perf --sparse-rows`: what its check must notice, which lines there are and what is refused.
#include "study/perf_rows.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "group/row_words.h"
#include "study/lonely_group.h"

namespace talweg::study {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kRowWidth = 16, kRowsOfLine = 100;

// Whose gathers copy, and can be told to do it wrong.
class LonelyRows : public LonelyGroup {
 public:
  bool loses_a_row = false;
  bool mistakes_a_key = false;
  bool never_ends = false;

  WorkPtr start(const Call& call) override {
    if (call.op != Collective::all_gather) return LonelyGroup::start(call);
    if (never_ends) throw_error(ErrorCode::timeout, "all_gather 3 has not ended");
    const std::size_t bytes = call.counts[0] * size_of(call.type);
    std::memcpy(call.out, call.in, bytes);
    const bool words = call.type == DataType::i64 && call.counts[0] == group::kRowWords;
    if (words && loses_a_row) {
      group::RowWords said;
      std::memcpy(&said, call.out, sizeof said);
      --said.count;
      std::memcpy(call.out, &said, sizeof said);
    } else if (call.type == DataType::i64 && !words && mistakes_a_key) {
      auto* const keys = static_cast<std::int64_t*>(call.out);
      for (std::size_t i = 0; i + 1 < call.counts[0]; ++i)
        if (keys[i] + 1 < keys[i + 1]) {
          ++keys[i];
          break;
        }
    } else if (call.type == DataType::f32) {
      if (flips_a_bit) *static_cast<unsigned char*>(call.out) ^= 1;
      if (scribbles_on_input) *static_cast<unsigned char*>(const_cast<void*>(call.in)) ^= 1;
    }
    return LonelyGroup::start({.op = Collective::barrier});
  }
};

PerfOptions rows_options() {
  PerfOptions options;
  options.sizes = {kRowsOfLine * kRowWidth * sizeof(float)};
  options.types = {DataType::f32};
  options.reductions = {ReduceOp::sum};
  options.iterations = 2;
  return options;
}

RowsPerfOptions half_of_rows() {
  RowsPerfOptions how{kRowWidth, {}};
  how.sparse.density = 0.5;
  return how;
}

std::optional<std::uint64_t> wrong_of(LonelyRows& group, const PerfOptions& options) {
  RowsWays ways;
  const PerfCase c = rows_cases(half_of_rows(), options, 1).at(0);
  const auto wrong = measure_rows(group, c, options, half_of_rows(), ways).wrong;
  EXPECT_EQ(ways.describe(), "trees");
  return wrong;
}

std::string refusal_of(const std::function<void()>& what, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    what();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "nothing was thrown";
}

TEST(PerfRows, OfARightSumNothingIsWrong) {
  LonelyRows group;
  EXPECT_EQ(wrong_of(group, rows_options()), 0U);
}

TEST(PerfRows, AWrongElementOfEachCheckIsCounted) {
  for (const int checks : {1, 3}) {
    LonelyRows group;
    group.flips_a_bit = true;
    PerfOptions options = rows_options();
    options.check = checks;
    EXPECT_EQ(wrong_of(group, options), static_cast<std::uint64_t>(checks));
    options.check = 0;
    EXPECT_EQ(wrong_of(group, options), std::nullopt);
  }
}

TEST(PerfRows, OfOtherRowsAllIsWrong) {
  LonelyRows loses, mistakes;
  loses.loses_a_row = mistakes.mistakes_a_key = true;
  const auto of_less = wrong_of(loses, rows_options());
  EXPECT_GT(of_less, 20 * kRowWidth);
  EXPECT_LT(of_less, 80 * kRowWidth);
  EXPECT_EQ(wrong_of(mistakes, rows_options()), of_less);
}

TEST(PerfRows, AChangedInputIsWrong) {
  LonelyRows group;
  group.scribbles_on_input = true;
  EXPECT_GE(wrong_of(group, rows_options()), kRowsOfLine * kRowWidth);
}

TEST(PerfRows, OfWhichOneTakesTooLongTheCallIsNamed) {
  LonelyRows group;
  group.never_ends = true;
  PerfOptions options = rows_options();
  EXPECT_EQ(refusal_of([&] { wrong_of(group, options); }, ErrorCode::timeout), "all_gather 3 has not ended");
  options.timeout = std::chrono::hours(1);
  EXPECT_EQ(refusal_of([&] { wrong_of(group, options); }, ErrorCode::timeout),
            "all_reduce of 6400 bytes in rows took longer than the 3600000 ms of -T: all_gather 3 has not "
            "ended");
}

TEST(PerfRows, LinesThatHoldNoneOrTheSameAreLeftOut) {
  PerfOptions options = rows_options();
  options.sizes = {4, 63, 64, 68, 127, 128, 255};
  std::vector<std::size_t> counts;
  for (const PerfCase& c : rows_cases(half_of_rows(), options, 3)) counts.push_back(c.count);
  EXPECT_THAT(counts, testing::ElementsAre(16, 32, 48));
  options.types = {DataType::f32, DataType::f16};
  options.sizes = {32, 64};
  counts.clear();
  for (const PerfCase& c : rows_cases(half_of_rows(), options, 3)) counts.push_back(c.count);
  EXPECT_THAT(counts, testing::ElementsAre(16, 16, 32)) << "of half two, of float one";
  options.types = {DataType::f32};
  options.sizes = {4, 60};
  EXPECT_EQ(refusal_of([&] { check_rows_perf(half_of_rows(), options, 1); }),
            "--sparse-rows 16: 60 bytes hold no such row of float");
}

TEST(PerfRows, OfWhichNoTwoRanksHaveOneEachHasItsPart) {
  RowsPerfOptions how = half_of_rows();
  how.sparse.overlap = Overlap::none;
  EXPECT_NO_THROW(check_rows_perf(how, rows_options(), 2));
  EXPECT_THAT(refusal_of([&] { check_rows_perf(how, rows_options(), 3); }),
              AllOf(StartsWith("--overlap none: 3 ranks cannot have 0.5 of all rows each"),
                    HasSubstr("--sparse-density, up to 1/3")));
  how.sparse.density = 1;
  EXPECT_NO_THROW(check_rows_perf(how, rows_options(), 1));
  EXPECT_THAT(refusal_of([&] { check_rows_perf(how, rows_options(), 2); }),
              StartsWith("--overlap none: 2 ranks cannot have all rows each and none in common"));
}

}  // namespace
}  // namespace talweg::study
