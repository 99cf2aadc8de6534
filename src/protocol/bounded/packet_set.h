// PacketSet: which of a transfer's packets: a bit each, counted, and in the order that holes travel in
// (wire/bounded.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/bounded.h"

namespace talweg::protocol {

class PacketSet {
 public:
  PacketSet() = default;
  explicit PacketSet(std::uint32_t size) { reset(size); }

  // Of packets 0 .. size - 1: none, or all of them. Memory of an earlier use is kept.
  void reset(std::uint32_t size, bool all = false) {
    size_ = size;
    count_ = all ? size : 0;
    words_.assign((std::size_t{size} + 63) / 64, all ? ~std::uint64_t{0} : 0);
    if (all && size % 64 != 0) words_.back() >>= 64 - size % 64;
  }
  std::uint32_t size() const { return size_; }
  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool has(std::uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  // True if that has changed anything.
  bool add(std::uint32_t i) {
    if (has(i)) return false;
    words_[i / 64] |= std::uint64_t{1} << (i % 64);
    ++count_;
    return true;
  }
  bool remove(std::uint32_t i) {
    if (!has(i)) return false;
    words_[i / 64] &= ~(std::uint64_t{1} << (i % 64));
    --count_;
    return true;
  }
  // The first one from `from` on; size(): none.
  std::uint32_t next(std::uint32_t from) const {
    if (from >= size_) return size_;
    std::uint64_t word = words_[from / 64] >> (from % 64) << (from % 64);
    for (std::size_t w = from / 64;; word = words_[w]) {
      if (word != 0)
        return static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(word));
      if (++w == words_.size()) return size_;
    }
  }
  // The same, from the beginning again where there is none; not of an empty set.
  std::uint32_t next_around(std::uint32_t from) const {
    const std::uint32_t i = next(from);
    return i < size_ ? i : next(0);
  }
  // The bits of the window that begins at `first`.
  std::span<const std::byte> bits(std::uint32_t first) const {
    const std::uint32_t n = size_ - first < wire::kHoleWindow ? size_ - first : wire::kHoleWindow;
    return std::as_bytes(std::span(words_)).subspan(first / 8, (n + 7) / 8);
  }
  bool operator==(const PacketSet&) const = default;

 private:
  std::vector<std::uint64_t> words_;
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace talweg::protocol
