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
  return type == DataType::f64 || type == DataType::f32 || type == DataType::f16 || type == DataType::bf16;
}

}  // namespace

std::uint8_t queue_priority(double depth, int queues, LayerOrder order) {
  if (queues == 1) return wire::kOrdinary;
  const double place = order == LayerOrder::front_first ? depth : 1 - depth;
  return static_cast<std::uint8_t>(1 + std::min(static_cast<int>(place * queues), queues - 1));
}

double packet_magnitude(DataType type, const std::byte* data, std::size_t count) {
  const std::size_t bytes = size_of(type);
  double squares = 0;
  std::size_t n = 0;
  for (std::size_t i = 0; i < count; i += kSampleStep) {
    const std::size_t here = std::min(kSample, count - i);
    const std::byte* const at = data + i * bytes;
    if (type == DataType::f64) {
      double some[kSample] = {};
      std::memcpy(some, at, here * bytes);
      for (const double x : some) squares += x * x;
    } else {
      float some[kSample] = {};
      if (type == DataType::f32)
        std::memcpy(some, at, here * bytes);
      else
        kernel::widen(type, some, at, here);
      for (const float x : some) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    n += here;
  }
  if (n == 0) return 0;
  const double mean = std::sqrt(squares / static_cast<double>(n));
  return std::isfinite(mean) ? mean : std::numeric_limits<double>::quiet_NaN();
}

ImportantPackets::ImportantPackets(const BoundedShape& shape, DataType type)
    : shape_(shape), type_(type), important_(shape.packets()) {
  if (shape.stride % size_of(type) != 0)
    refuse("tensor {}: packets of {} bytes cut elements of {} apart", shape.tensor, shape.stride,
           size_of(type));
}

const PacketSet& ImportantPackets::of(const std::byte* gradient, double droppable) {
  const std::uint32_t packets = shape_.packets();
  important_.reset(packets, true);
  if (!has_magnitude(type_) || droppable <= 0) return important_;
  magnitudes_.clear();
  const std::uint32_t first = first_to_leave(packets, ++calls_, 0, shape_.tensor);
  for (std::uint32_t i = 0; i < packets; ++i) {
    const std::byte* const at = gradient + std::uint64_t{i} * shape_.stride;
    const double magnitude = packet_magnitude(type_, at, shape_.length(i) / size_of(type_));
    // What is no number shows that something is wrong, and must be seen.
    if (!std::isnan(magnitude)) magnitudes_.push_back({magnitude, (i + first) % packets, i});
  }
  const auto most = static_cast<std::size_t>(droppable * packets);
  const auto n = static_cast<std::ptrdiff_t>(std::min(most, magnitudes_.size()));
  if (static_cast<std::size_t>(n) < magnitudes_.size())
    std::ranges::nth_element(magnitudes_, magnitudes_.begin() + n);
  for (auto m = magnitudes_.begin(); m != magnitudes_.begin() + n; ++m) important_.remove(m->packet);
  return important_;
}

}  // namespace talweg::protocol
