// That data move without allocation. A program of its own, since it counts what the whole process allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "counted_new.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg {
namespace {

class Allocations : public ::testing::TestWithParam<const char*> {
 protected:
  Variable shm_{"TALWEG_SHM", GetParam() == std::string("shm") ? "on" : "off"};
  Variable transport_{"TALWEG_TRANSPORT", GetParam() == std::string("udp") ? "udp" : "tcp"};
  Variable algorithm_{"TALWEG_ALGO", "ring"};
};
INSTANTIATE_TEST_SUITE_P(Transports, Allocations, ::testing::Values("shm", "tcp", "udp"),
                         [](const auto& test) { return std::string(test.param); });

// For a call's own objects and those of whoever waits for it: measured are six.
constexpr long kMostOfACall = 16;

TEST_P(Allocations, AreNoMoreForCallsOfManyChunks) {
  constexpr int kAllocatingRanks = 3, kAllocatingCalls = 10;
  constexpr std::size_t kManyChunks = 6 << 20;  // elements: some hundreds of chunks
  std::barrier all(kAllocatingRanks);
  long counted_anew = 0;
  run_ranks(kAllocatingRanks, [&](Group& g) {
    std::vector<float> data(kManyChunks, 1.0F);
    if (GetParam() == std::string("udp")) {
      EXPECT_THAT(g.describe(), ::testing::HasSubstr("UDP ports"));
    }
    for (int round = 0; round < 2; ++round) {  // buffers and queues are made in the first one
      all.arrive_and_wait();
      const long before = allocations();
      all.arrive_and_wait();
      for (int call = 0; call < kAllocatingCalls; ++call)
        g.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::max);
      all.arrive_and_wait();
      if (g.rank() == 0) counted_anew = allocations() - before;
    }
  });
  EXPECT_GT(counted_anew, 0);  // else nothing is counted
  EXPECT_LE(counted_anew, kMostOfACall * kAllocatingRanks * kAllocatingCalls);
}

// Rank 1 has no memory for the first thing that a call takes, for the second one, and so on, up to what the
// call takes to tell the other rank of it.
TEST(Allocations, ThatFailBeforeBoundedSumsBeginAreAnErrorOnAllRanks) {
  run_ranks(2, [&](Group& group) {
    const auto sums = BoundedSums::make(group);
    const bool here = group.rank() == 1;
    std::vector<float> values(100, 1), sum(100);
    std::string error;
    const auto call = [&](long memory) {
      error.clear();
      run_out_of_memory_after(memory);
      try {
        sums->all_reduce({.in = values.data(), .out = sum.data(), .count = values.size()});
      } catch (const std::exception& e) {
        run_out_of_memory_after(-1);
        error = e.what();
      }
      run_out_of_memory_after(-1);
    };
    long some = 0;
    const auto refused = [&] {
      return here ? error == "std::bad_alloc" : error.find("was refused there") != std::string::npos;
    };
    for (call(here ? some : -1); refused(); call(here ? some : -1)) ++some;
    EXPECT_GT(some, 0);
    EXPECT_NE(error.find("on rank 1"), std::string::npos) << error;
    EXPECT_NE(error.find("std::bad_alloc"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace talweg
