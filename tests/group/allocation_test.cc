// That data move without allocation. A program of its own, since it counts what the whole process allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "counted_new.h"
#include "live/served_switch.h"
#include "ranks.h"
#include "switched.h"
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

// What a call by a switch takes before it: then it goes another way, on all ranks, and so does none after it
// that could go by the switch.
TEST(Allocations, ThatFailWhereASumIsLinedUpAtASwitchCostNoResult) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        const auto sums = BoundedSums::make(group);
        const bool here = group.rank() == 1;
        std::vector<float> values(1000), sum(1000);
        float last = 0;
        std::string error;
        bool by_switch = false;
        const auto call = [&](long memory) {  // each has another sum
          std::ranges::fill(values, ++last);
          error.clear();
          run_out_of_memory_after(memory);
          try {
            by_switch =
                sums->all_reduce({.in = values.data(), .out = sum.data(), .count = values.size()}).by_switch;
          } catch (const std::exception& e) {
            run_out_of_memory_after(-1);
            error = e.what();
          }
          run_out_of_memory_after(-1);
          if (error.empty()) {
            EXPECT_THAT(sum, ::testing::Each(last * kRanks));
          }
        };
        const auto until_by_switch = [&] {
          const std::int64_t deadline_ns = live::soon();
          for (call(-1); !by_switch; call(-1)) {
            ASSERT_EQ(error, "");
            ASSERT_LT(live::now_ns(), deadline_ns);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        };
        until_by_switch();
        int refused = 0, other_ways = 0;
        for (long some = 0;; ++some) {
          group.barrier();  // the call before has ended on all ranks
          call(here ? some : -1);
          if (error.empty() && by_switch) continue;  // that memory was not needed
          if (error.empty())
            ++other_ways;
          else if (error == "std::bad_alloc" || error.find("was refused there") != std::string::npos)
            ++refused;
          else
            break;
          until_by_switch();
        }
        EXPECT_GT(refused, 0);
        EXPECT_GT(other_ways, 0);
        EXPECT_NE(error.find("on rank 1"), std::string::npos) << error;
        EXPECT_NE(error.find("std::bad_alloc"), std::string::npos) << error;
      },
      through(at(served)));
}

}  // namespace
}  // namespace talweg
