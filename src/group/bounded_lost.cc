#include "group/bounded_lost.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace talweg::group {

namespace {

// Whose are elements that are named in ascending order.
class LossesByLayer {
 public:
  LossesByLayer(const BoundedCall& call, LossReport& report)
      : call_(call),
        report_(report),
        element_(size_of(call.type)),
        layer_end_(call.layers.empty() ? call.count : call.layers[0]) {}

  // Elements `at` .. `end` - 1.
  void lose(std::size_t at, std::size_t end, bool important) {
    report_.lost_bytes += (end - at) * element_;
    if (important) report_.lost_important_bytes += (end - at) * element_;
    while (at < end) {
      while (at >= layer_end_) layer_end_ += call_.layers[++layer_];
      const std::size_t until = std::min(end, layer_end_);
      report_.lost_of_layer[layer_] += (until - at) * element_;
      at = until;
    }
  }

 private:
  const BoundedCall& call_;
  LossReport& report_;
  const std::size_t element_;
  std::size_t layer_ = 0;
  std::size_t layer_end_;  // in elements
};

}  // namespace

void note_lost(const protocol::Exchange& exchange, int r, const BoundedCall& call, std::size_t first,
               LossReport& report) {
  const protocol::BoundedShape& shape = exchange.shape(r);
  const protocol::PacketSet& lost = exchange.lost(r);
  const std::size_t element = size_of(call.type);
  LossesByLayer losses(call, report);
  for (std::uint32_t i = lost.next(0); i < lost.size(); i = lost.next(i + 1)) {
    const std::size_t at = first + std::uint64_t{i} * shape.stride / element;
    const auto* const important = exchange.important(r);
    losses.lose(at, at + shape.length(i) / element, important == nullptr || important->has(i));
  }
}

void note_lost(std::span<const protocol::SumLosses::Range> own, const BoundedCall& call, LossReport& report) {
  LossesByLayer losses(call, report);
  for (const auto& [first, count] : own) losses.lose(first, first + count, true);
}

void keep_lost(const protocol::Exchange& exchange, int self, std::span<const std::size_t> offsets,
               const BoundedCall& call) {
  if (call.residual == nullptr) return;
  const std::size_t element = size_of(call.type);
  for (std::size_t r = 0; r < offsets.size(); ++r) {
    std::byte* const shard = static_cast<std::byte*>(call.residual) + offsets[r] * element;
    if (static_cast<int>(r) == self) {
      const std::size_t end = r + 1 < offsets.size() ? offsets[r + 1] : call.count;
      std::memset(shard, 0, (end - offsets[r]) * element);
      continue;
    }
    const protocol::BoundedShape& shape = exchange.shape(static_cast<int>(r));
    const protocol::PacketSet& lost = exchange.lost(static_cast<int>(r));
    for (std::uint32_t i = 0; i < shape.packets(); ++i)
      if (!lost.has(i)) std::memset(shard + std::uint64_t{i} * shape.stride, 0, shape.length(i));
  }
}

void keep_lost(std::span<const protocol::SumLosses::Range> own, const BoundedCall& call) {
  if (call.residual == nullptr) return;
  auto* const residual = static_cast<std::byte*>(call.residual);
  const std::size_t element = size_of(call.type);
  std::size_t arrived = 0;  // elements from here on, up to the next range
  for (const auto& [first, count] : own) {
    std::memset(residual + arrived * element, 0, (first - arrived) * element);
    arrived = first + count;
  }
  std::memset(residual + arrived * element, 0, (call.count - arrived) * element);
}

}  // namespace talweg::group
