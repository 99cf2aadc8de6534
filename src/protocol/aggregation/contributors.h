// Which of any number of workers: a set in memory that belongs to somebody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace talweg::protocol {

constexpr std::size_t contributor_words(std::size_t workers) {
  return (workers + 63) / 64;
}

class Contributors {
 public:
  explicit Contributors(std::span<std::uint64_t> words) : words_(words) {}

  bool has(std::size_t worker) const { return (words_[worker / 64] >> (worker % 64) & 1) != 0; }
  // True if it was not there.
  bool add(std::size_t worker) {
    const bool had = has(worker);
    words_[worker / 64] |= std::uint64_t{1} << (worker % 64);
    return !had;
  }
  void remove(std::size_t worker) { words_[worker / 64] &= ~(std::uint64_t{1} << (worker % 64)); }
  bool empty() const {
    for (const std::uint64_t word : words_)
      if (word != 0) return false;
    return true;
  }
  void clear() {
    for (std::uint64_t& word : words_) word = 0;
  }

 private:
  std::span<std::uint64_t> words_;
};

}  // namespace talweg::protocol
