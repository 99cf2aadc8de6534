// A page of memory that all ranks of one measurement map, so that every contestant is synchronised and timed
// by the same means: a barrier that none of them had a hand in, and a place to leave samples for rank 0.
//
// All ranks run on one kernel (network namespaces share /dev/shm), so a mapped file reaches all of them.
// Layout, shared with bench/suite/board.py: kMaxRanks generations of 8 bytes, 64 bytes apart, then
// kMaxSamples doubles per rank. The file must be zero at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace talweg::bench {

class Board {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr std::size_t kMaxSamples = 1024;

  // `idle` is called while a rank waits: libraries that only make progress inside their own calls need it.
  Board(const std::string& path, int rank, int size, std::function<void()> idle);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Waits asleep until all ranks are here, since a rank that is done must not take a core from those that are
  // not; then once more, spinning, so that all leave together. Throws std::runtime_error after two minutes.
  void barrier();
  // Entry i of the result is the maximum over the ranks of entry i. All ranks call it with equally many
  // values, at most kMaxSamples.
  std::vector<double> max_over_ranks(const std::vector<double>& mine);

 private:
  static constexpr std::size_t kSlotBytes = 64;
  static constexpr std::size_t kBytes = kMaxRanks * (kSlotBytes + kMaxSamples * sizeof(double));

  template <typename Pause>
  void meet(Pause pause);
  std::uint64_t& generation(int rank);
  double* samples(int rank);

  int rank_;
  int size_;
  int spins_before_yield_;
  std::function<void()> idle_;
  std::uint64_t passed_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace talweg::bench
