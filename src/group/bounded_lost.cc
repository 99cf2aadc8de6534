#include "group/bounded_lost.h"

#include <algorithm>
#include <cstdint>

namespace talweg::group {

void note_lost(const protocol::Exchange& exchange, int r, const BoundedCall& call, std::size_t first,
               LossReport& report) {
  const protocol::BoundedShape& shape = exchange.shape(r);
  const protocol::PacketSet& lost = exchange.lost(r);
  const std::size_t element = size_of(call.type);
  std::size_t layer = 0;
  std::size_t layer_end = call.layers.empty() ? call.count : call.layers[0];  // in elements
  for (std::uint32_t i = lost.next(0); i < lost.size(); i = lost.next(i + 1)) {
    std::size_t at = first + std::uint64_t{i} * shape.stride / element;
    const std::size_t end = at + shape.length(i) / element;
    report.lost_bytes += shape.length(i);
    if (const auto* const important = exchange.important(r); important == nullptr || important->has(i))
      report.lost_important_bytes += shape.length(i);
    while (at < end) {
      while (at >= layer_end) layer_end += call.layers[++layer];
      const std::size_t until = std::min(end, layer_end);
      report.lost_of_layer[layer] += (until - at) * element;
      at = until;
    }
  }
}

}  // namespace talweg::group
