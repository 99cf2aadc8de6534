#include "board.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace talweg::bench {

namespace {

constexpr auto kPatience = std::chrono::minutes(2);
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kWaitsBetweenClockReads = 4096;

}  // namespace

Board::Board(const std::string& path, int rank, int size, std::function<void()> idle)
    : rank_(rank), size_(size), idle_(std::move(idle)) {
  if (size > kMaxRanks) throw std::runtime_error("board: at most 64 ranks");
  spins_before_yield_ = size <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 0;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0) throw std::runtime_error("open " + path + ": " + std::strerror(errno));
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, kBytes) == 0)
    mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) throw std::runtime_error("map " + path + ": " + std::strerror(errno));
  memory_ = static_cast<std::byte*>(mapped);
}

Board::~Board() {
  ::munmap(memory_, kBytes);
}

std::uint64_t& Board::generation(int rank) {
  return *reinterpret_cast<std::uint64_t*>(memory_ + static_cast<std::size_t>(rank) * kSlotBytes);
}

double* Board::samples(int rank) {
  return reinterpret_cast<double*>(memory_ + kMaxRanks * kSlotBytes) +
         static_cast<std::size_t>(rank) * kMaxSamples;
}

template <typename Pause>
void Board::meet(Pause pause) {
  ++passed_;
  std::atomic_ref(generation(rank_)).store(passed_, std::memory_order_release);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int waits = 0;
  for (int r = 0; r < size_; ++r) {
    while (std::atomic_ref(generation(r)).load(std::memory_order_acquire) < passed_) {
      if (idle_) idle_();
      pause(++waits);
      if (waits % kWaitsBetweenClockReads == 0 && std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("rank " + std::to_string(rank_) + " waited two minutes for rank " +
                                 std::to_string(r));
      }
    }
  }
}

void Board::barrier() {
  meet([](int) { std::this_thread::sleep_for(kNap); });
  meet([&](int waits) {
    if (waits > spins_before_yield_) ::sched_yield();
  });
}

std::vector<double> Board::max_over_ranks(const std::vector<double>& mine) {
  if (mine.size() > kMaxSamples) throw std::runtime_error("board: too many samples");
  std::copy(mine.begin(), mine.end(), samples(rank_));
  barrier();
  std::vector<double> most(mine);
  for (int r = 0; r < size_; ++r) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], samples(r)[i]);
  }
  barrier();  // nobody overwrites samples that another rank still reads
  return most;
}

}  // namespace talweg::bench
