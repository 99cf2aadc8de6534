#include "protocol/bounded/packet_class.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "kernel/blocks.h"

namespace talweg::protocol {

namespace {

// Of each kSampleStep values in a row the first kSample: what a cache line brings is used.
constexpr std::size_t kSample = 8;
constexpr std::size_t kSampleStep = 64;

bool has_magnitude(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16;
}

std::uint32_t place_in_order(std::uint32_t layer, std::uint32_t layers, LayerOrder order) {
  return order == LayerOrder::front_first ? layer : layers - 1 - layer;
}

}  // namespace

std::uint8_t queue_priority(std::uint32_t layer, std::uint32_t layers, std::uint8_t queues,
                            LayerOrder order) {
  const std::uint64_t place = place_in_order(layer, layers, order);
  return static_cast<std::uint8_t>(1 + place * queues / layers);
}

double drop_fraction(std::uint32_t layer, std::uint32_t layers, double least, double most, LayerOrder order) {
  if (layers < 2) return least;
  return least + (most - least) * place_in_order(layer, layers, order) / (layers - 1);
}

float packet_magnitude(DataType type, const std::byte* data, std::size_t count) {
  const std::size_t bytes = size_of(type);
  double squares = 0;
  std::size_t n = 0;
  for (std::size_t i = 0; i < count; i += kSampleStep) {
    float some[kSample] = {};
    const std::size_t here = std::min(kSample, count - i);
    if (type == DataType::f32)
      std::memcpy(some, data + i * bytes, here * bytes);
    else
      kernel::widen(type, some, data + i * bytes, here);
    for (const float x : some) squares += static_cast<double>(x) * static_cast<double>(x);
    n += here;
  }
  if (n == 0) return 0;
  const auto mean = static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
  return std::isfinite(mean) ? mean : std::numeric_limits<float>::quiet_NaN();
}

ImportantPackets::ImportantPackets(const BoundedShape& shape, DataType type, double droppable_fraction)
    : shape_(shape), type_(type), fraction_(droppable_fraction), important_(shape.packets()) {
  if (!(droppable_fraction >= 0 && droppable_fraction <= 1))
    refuse("tensor {}: a part of {} that may be dropped first: expected 0 to 1", shape.tensor,
           droppable_fraction);
  if (shape.stride % size_of(type) != 0)
    refuse("tensor {}: packets of {} bytes cut elements of {} apart", shape.tensor, shape.stride,
           size_of(type));
}

const PacketSet& ImportantPackets::of(const std::byte* gradient) {
  const std::uint32_t packets = shape_.packets();
  if (!has_magnitude(type_) || fraction_ <= 0) {
    important_.reset(packets, true);
    return important_;
  }
  important_.reset(packets);
  magnitudes_.clear();
  for (std::uint32_t i = 0; i < packets; ++i) {
    const std::byte* const at = gradient + std::uint64_t{i} * shape_.stride;
    const float magnitude = packet_magnitude(type_, at, shape_.length(i) / size_of(type_));
    // What is no number shows that something is wrong, and must be seen.
    if (!known_ || !(magnitude <= threshold_)) important_.add(i);
    if (!std::isnan(magnitude)) magnitudes_.push_back(magnitude);
  }
  learn();
  return important_;
}

void ImportantPackets::learn() {
  if (magnitudes_.empty()) return;
  // At or below the threshold are so many; a fraction too small for one packet takes the smallest.
  const auto below = static_cast<std::size_t>(fraction_ * static_cast<double>(magnitudes_.size()));
  const auto nth = magnitudes_.begin() + static_cast<std::ptrdiff_t>(below > 0 ? below - 1 : 0);
  std::nth_element(magnitudes_.begin(), nth, magnitudes_.end());
  threshold_ = known_ ? threshold_ + kNewest * (*nth - threshold_) : *nth;
  known_ = true;
}

}  // namespace talweg::protocol
