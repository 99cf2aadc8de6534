// RangeSet: a set of numbers as ranges [begin, end), in order, that do not touch. Never more than `most` of
// them: what would take one more is not added, and whoever adds decides what that means.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace talweg::protocol {

class RangeSet {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool operator==(const Range&) const = default;
  };

  explicit RangeSet(std::size_t most) : most_(most) { ranges_.reserve(std::min<std::size_t>(most, kRoom)); }

  // False, and nothing has changed, when that takes one range too many.
  bool add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return true;
    // Most of what comes continues the last range.
    if (!ranges_.empty() && begin >= ranges_.back().begin && begin <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, end);
      return true;
    }
    const auto first = std::ranges::lower_bound(ranges_, begin, {}, &Range::end);
    auto last = first;
    while (last != ranges_.end() && last->begin <= end) ++last;
    if (first == last) {
      if (ranges_.size() >= most_) return false;
      ranges_.insert(first, {begin, end});
      return true;
    }
    first->begin = std::min(first->begin, begin);
    first->end = std::max(std::prev(last)->end, end);
    ranges_.erase(std::next(first), last);
    return true;
  }
  // False, and nothing has changed, when that cuts one range into one too many.
  bool remove(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return true;
    auto it = std::ranges::upper_bound(ranges_, begin, {}, &Range::end);
    if (it == ranges_.end() || it->begin >= end) return true;
    if (it->begin < begin && it->end > end) {
      if (ranges_.size() >= most_) return false;
      const Range rest{end, it->end};
      it->end = begin;
      ranges_.insert(std::next(it), rest);
      return true;
    }
    if (it->begin < begin) {
      it->end = begin;
      ++it;
    }
    auto last = it;
    while (last != ranges_.end() && last->end <= end) ++last;
    if (last != ranges_.end() && last->begin < end) last->begin = end;
    ranges_.erase(it, last);
    return true;
  }
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    const auto it = std::ranges::upper_bound(ranges_, begin, {}, &Range::end);
    return begin >= end || (it != ranges_.end() && it->begin <= begin && end <= it->end);
  }
  void remove_first() { ranges_.erase(ranges_.begin()); }

  bool empty() const { return ranges_.empty(); }
  bool full() const { return ranges_.size() >= most_; }
  std::span<const Range> ranges() const { return ranges_; }

 private:
  static constexpr std::size_t kRoom = 64;  // from the beginning; more is taken as it is needed, and kept

  std::size_t most_;
  std::vector<Range> ranges_;
};

}  // namespace talweg::protocol
