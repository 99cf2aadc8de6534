#include "study/perf_case.h"

#include <gmock/gmock.h>

namespace talweg::study {
namespace {

using testing::ElementsAre;

TEST(PerfCase, BusBandwidthFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::broadcast, 4), 1.0);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::reduce, 4), 1.0);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::send_recv, 4), 1.0);
}

TEST(PerfCase, TheCountOfAVectorMadeOfPartsIsThatOfOnePart) {
  EXPECT_EQ(count_for(Collective::all_reduce, 1024, DataType::f32, 4), 256u);
  EXPECT_EQ(count_for(Collective::all_gather, 1024, DataType::f32, 4), 64u);
  const PerfCase c{Collective::all_gather, DataType::f32, ReduceOp::sum, 0, 4, 64};
  EXPECT_EQ(vector_bytes(c), 1024u);
}

TEST(PerfCase, ASizeThatDoesNotDivideIsRoundedDownAndShownSo) {
  const PerfCase c{Collective::reduce_scatter,
                   DataType::f64,
                   ReduceOp::sum,
                   0,
                   3,
                   count_for(Collective::reduce_scatter, 100, DataType::f64, 3)};
  EXPECT_EQ(c.count, 4u);
  EXPECT_EQ(vector_bytes(c), 96u);
}

TEST(PerfCase, SizesGrowByTheFactorOrByTheStepUpToTheLast) {
  EXPECT_THAT(sizes_to_scan(8, 64, 1, 2), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sizes_to_scan(8, 50, 1, 2), ElementsAre(8, 16, 32));
  EXPECT_THAT(sizes_to_scan(10, 30, 10, 0), ElementsAre(10, 20, 30));
  EXPECT_THAT(sizes_to_scan(5, 5, 0, 0), ElementsAre(5));
}

TEST(PerfCase, OnlyTheRootHasWhatOnlyTheRootHolds) {
  const PerfCase gather{Collective::gather, DataType::f32, ReduceOp::sum, 1, 4, 10};
  EXPECT_EQ(output_elements(gather, 1), 40u);
  EXPECT_EQ(output_elements(gather, 0), 0u);
  EXPECT_EQ(input_elements(gather, 0), 10u);
  const PerfCase scatter{Collective::scatter, DataType::f32, ReduceOp::sum, 1, 4, 10};
  EXPECT_EQ(input_elements(scatter, 1), 40u);
  EXPECT_EQ(input_elements(scatter, 0), 0u);
  EXPECT_EQ(output_elements(scatter, 0), 10u);
}

}  // namespace
}  // namespace talweg::study
