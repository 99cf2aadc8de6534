// KeptSizes: of which sizes of vectors an exchange knows how long their parts take: those used last.
//
//   if (const auto number = sizes.use(count, type)) ... it is kept by this number
//   if (const auto old = sizes.make_room()) exchange.forget(*old);
//   sizes.add(count, type, exchange.add(...));
//
// Ranks that use the same sizes in the same order keep the same ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "talweg/group.h"

namespace talweg::group {

class KeptSizes {
 public:
  explicit KeptSizes(std::size_t most) : most_(most) {}

  // Its number; none: it is not kept.
  std::optional<std::size_t> look(std::size_t count, DataType type) const {
    const auto at = std::ranges::find(sizes_, std::pair(count, type), &Size::key);
    return at == sizes_.end() ? std::nullopt : std::optional(at->number);
  }
  // The same, and it is the one used last now.
  std::optional<std::size_t> use(std::size_t count, DataType type) {
    const auto at = std::ranges::find(sizes_, std::pair(count, type), &Size::key);
    if (at == sizes_.end()) return std::nullopt;
    std::rotate(at, at + 1, sizes_.end());
    return sizes_.back().number;
  }
  // Where there are as many as are kept: the number of the one used longest ago, which goes.
  std::optional<std::size_t> make_room() {
    if (sizes_.size() < most_) return std::nullopt;
    const std::size_t number = sizes_.front().number;
    sizes_.erase(sizes_.begin());
    return number;
  }
  void add(std::size_t count, DataType type, std::size_t number) { sizes_.push_back({count, type, number}); }

 private:
  struct Size {
    std::size_t count;
    DataType type;
    std::size_t number;
    std::pair<std::size_t, DataType> key() const { return {count, type}; }
  };
  const std::size_t most_;
  std::vector<Size> sizes_;  // in the order of their last use
};

}  // namespace talweg::group
