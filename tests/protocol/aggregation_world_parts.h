// What a world of aggregation consists of; for its own sources.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/half.h"
#include "protocol/aggregation_world.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationFormat;
using wire::AggregationType;

inline constexpr std::size_t kGuard = 16;  // bytes in front of and behind an output that nobody may touch
inline constexpr std::byte kGuardByte{0xa5};

template <typename T>
void put(std::vector<std::byte>& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}
template <typename T>
T get(const std::byte* bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof value, sizeof value);
  return value;
}

inline double number_at(AggregationFormat format, const std::byte* bytes, std::size_t i) {
  switch (format) {
    case AggregationFormat::f16:
      return static_cast<double>(kernel::f16_to_f32(get<std::uint16_t>(bytes, i)));
    case AggregationFormat::bf16:
      return static_cast<double>(kernel::bf16_to_f32(get<std::uint16_t>(bytes, i)));
    case AggregationFormat::i32:
      return get<std::int32_t>(bytes, i);
    case AggregationFormat::f32:
    case AggregationFormat::scaled:
    case AggregationFormat::pairs:
    case AggregationFormat::block8:
    case AggregationFormat::block4:
      break;
  }
  return static_cast<double>(get<float>(bytes, i));
}

struct AggregationWorld::Tensor {
  Sum sum;  // without pointers
  bool in_place = false;
  std::vector<std::vector<std::byte>> inputs;
  std::size_t width = 0;  // of rows; 0: it is no sparse tensor
  std::vector<std::vector<std::int64_t>>
      keys;                          // of each worker's rows, which its input has, and zeros elsewhere
  std::vector<double> expected;      // by element; NaN where it is none
  std::vector<double> bound;         // of coded formats: how far off each may be
  std::vector<std::byte> first_out;  // of who was done first: all others have the same bits
  bool by_order = false;             // which depend on the order in which contributions came
  std::uint32_t first_epoch = 0;

  // Where the block, or unit of a row, begins and ends that has this element.
  std::pair<std::size_t, std::size_t> block_of(std::size_t element) const {
    const std::size_t row = width == 0 ? 0 : element / width * width;
    const std::size_t length = width == 0 ? sum.block : units_of(width, sum.format, sum.block).length;
    const std::size_t first = row + (element - row) / length * length;
    return {first, std::min<std::size_t>(width == 0 ? sum.count : row + width, first + length)};
  }
};

struct AggregationWorld::Member : DatagramSink {
  AggregationWorld* world = nullptr;
  Job* job = nullptr;
  std::size_t number = 0;
  std::size_t rack = 0;
  std::uint16_t local = 0;  // its number at its switch
  std::uint64_t life = 0;
  std::unique_ptr<AggregationWorker> worker;
  std::vector<std::byte> in, out;
  KeptInput kept;  // of a sum in place
  Rows rows;       // of a sparse tensor: what `in` is then
  RowSums row_sums;
  std::size_t sum = 0;                                                   // that it is at, or will be
  std::map<std::pair<std::uint16_t, std::uint8_t>, std::uint64_t> said;  // by slot and column: its last key
  bool running = false;
  std::int64_t armed_ns = std::numeric_limits<std::int64_t>::max();

  void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override;
};

struct AggregationWorld::Job {
  std::uint32_t id = 0;
  std::uint32_t epoch = 1;
  std::size_t racks = 1;  // 1: all at the switch at the root
  JobTerms terms;         // of the root; of a rack's switch with the numbers below
  std::vector<std::uint16_t> in_rack;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<Tensor> sums;
  std::int64_t crash_ns = -1;
};

struct AggregationWorld::Box {
  std::size_t number = 0;
  AggregationSwitch box{SwitchLimits{}};
  std::int64_t armed_ns = std::numeric_limits<std::int64_t>::max();
};

}  // namespace talweg::protocol
