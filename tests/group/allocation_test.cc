// That data move without allocation. A program of its own, since it counts what the whole process allocates.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace {
std::atomic<long> allocated{0};
thread_local long left_here = -1;  // so many more on this thread, then there is no memory, once; below 0: all

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocated;
  if (left_here >= 0 && left_here-- == 0) throw std::bad_alloc();
  // A multiple of the alignment, as the function asks for.
  void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// Not inlined: GCC takes free() of what operator new gave for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes + 1, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes + 1, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace talweg {
namespace {

class Allocations : public ::testing::TestWithParam<const char*> {
 protected:
  Variable shm_{"TALWEG_SHM", GetParam()};
  Variable algorithm_{"TALWEG_ALGO", "ring"};
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Allocations, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

// For a call's own objects and those of whoever waits for it: measured are six.
constexpr long kMostOfACall = 16;

TEST_P(Allocations, AreNoMoreForCallsOfManyChunks) {
  constexpr int kAllocatingRanks = 3, kAllocatingCalls = 20;
  constexpr std::size_t kManyChunks = 6 << 20;  // elements: some hundreds of chunks
  std::barrier all(kAllocatingRanks);
  long counted_anew = 0;
  run_ranks(kAllocatingRanks, [&](Group& g) {
    std::vector<float> data(kManyChunks, 1.0F);
    for (int round = 0; round < 2; ++round) {  // buffers and queues are made in the first one
      all.arrive_and_wait();
      const long before = allocated;
      all.arrive_and_wait();
      for (int call = 0; call < kAllocatingCalls; ++call)
        g.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::max);
      all.arrive_and_wait();
      if (g.rank() == 0) counted_anew = allocated - before;
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
      left_here = memory;
      try {
        sums->all_reduce({.in = values.data(), .out = sum.data(), .count = values.size()});
      } catch (const std::exception& e) {
        left_here = -1;
        error = e.what();
      }
      left_here = -1;
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
