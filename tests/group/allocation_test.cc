// That data move without allocation. A program of its own, since it counts what the whole process allocates.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "ranks.h"

namespace {
std::atomic<long> allocated{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocated;
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

}  // namespace
}  // namespace talweg
