#include "talweg/types.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "talweg/error.h"

namespace talweg {
namespace {

TEST(Types, ReadsBackEveryNameItPrints) {
  for (int i = 0; i < kDataTypes; ++i) {
    EXPECT_EQ(parse_data_type(name(static_cast<DataType>(i))), static_cast<DataType>(i));
  }
  for (int i = 0; i < kReduceOps; ++i) {
    EXPECT_EQ(parse_reduce_op(name(static_cast<ReduceOp>(i))), static_cast<ReduceOp>(i));
  }
  for (int i = 0; i < kCollectives; ++i) {
    EXPECT_EQ(parse_collective(name(static_cast<Collective>(i))), static_cast<Collective>(i));
  }
}

TEST(Types, UnderstandsTheSpellingsOfOthers) {
  EXPECT_EQ(parse_data_type("float"), DataType::f32);
  EXPECT_EQ(parse_data_type("Float32"), DataType::f32);
  EXPECT_EQ(parse_data_type("half"), DataType::f16);
  EXPECT_EQ(parse_data_type("bfloat16"), DataType::bf16);
  EXPECT_EQ(parse_data_type("bool"), DataType::boolean);
  EXPECT_EQ(parse_data_type("uint8"), DataType::u8);
  EXPECT_EQ(parse_data_type("byte"), DataType::u8);
  EXPECT_EQ(parse_data_type("fp16"), DataType::f16);
  EXPECT_EQ(parse_data_type("float32"), DataType::f32);
  EXPECT_EQ(parse_data_type("fp32"), DataType::f32);
  EXPECT_EQ(parse_data_type("single"), DataType::f32);
  EXPECT_EQ(parse_data_type("complex128"), DataType::c128);
  EXPECT_EQ(parse_reduce_op("prod"), ReduceOp::product);
  EXPECT_EQ(parse_reduce_op("BAND"), ReduceOp::bit_and);
  EXPECT_EQ(parse_collective("allreduce"), Collective::all_reduce);
  EXPECT_EQ(parse_collective("all-to-all"), Collective::all_to_all);
}

TEST(Types, AnswersNothingToUnknownNames) {
  EXPECT_EQ(parse_data_type("f8"), std::nullopt);
  EXPECT_EQ(parse_data_type(""), std::nullopt);
  EXPECT_EQ(parse_data_type("fp"), std::nullopt);
  EXPECT_EQ(parse_data_type("float32 fp32"), std::nullopt);
  EXPECT_EQ(parse_reduce_op("median"), std::nullopt);
  EXPECT_EQ(parse_collective("unknown"), std::nullopt);
}

TEST(Types, KnowsTheSizeOfEveryElement) {
  const std::size_t sizes[kDataTypes] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 1};
  for (int i = 0; i < kDataTypes; ++i) EXPECT_EQ(size_of(static_cast<DataType>(i)), sizes[i]) << i;
}

TEST(Types, SurvivesAnUnknownNumberFromOutside) {
  EXPECT_STREQ(name(static_cast<DataType>(200)), "unknown");
  EXPECT_EQ(size_of(static_cast<DataType>(200)), 0u);
}

TEST(ErrorCodes, HaveDistinctNames) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(ErrorCode::corrupted); ++i)
    names.insert(name(static_cast<ErrorCode>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::corrupted) + 1);
  EXPECT_TRUE(names.contains("peer_failed"));
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace talweg
