#include "values.h"

#include <algorithm>
#include <cstring>

#include "kernel/half.h"

namespace talweg::soak {

namespace {

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Complex elements have the value and, except in products, its successor.
void store(DataType type, std::byte* to, int value, bool complex_product) {
  const int imaginary = complex_product ? 0 : -value;
  switch (type) {
    case DataType::u8:
    case DataType::i8:
    case DataType::boolean:
      return put(to, static_cast<std::uint8_t>(value));
    case DataType::u16:
    case DataType::i16:
      return put(to, static_cast<std::uint16_t>(value));
    case DataType::u32:
    case DataType::i32:
      return put(to, static_cast<std::uint32_t>(value));
    case DataType::u64:
    case DataType::i64:
      return put(to, static_cast<std::uint64_t>(value));
    case DataType::f16:
      return put(to, kernel::f32_to_f16(static_cast<float>(value)));
    case DataType::bf16:
      return put(to, kernel::f32_to_bf16(static_cast<float>(value)));
    case DataType::f32:
      return put(to, static_cast<float>(value));
    case DataType::f64:
      return put(to, static_cast<double>(value));
    case DataType::c64:
      put(to, static_cast<float>(value));
      return put(to + sizeof(float), static_cast<float>(imaginary));
    case DataType::c128:
      put(to, static_cast<double>(value));
      return put(to + sizeof(double), static_cast<double>(imaginary));
  }
}

constexpr std::size_t kWidest = 16;

}  // namespace

int Values::value(int rank, std::size_t index) const {
  std::uint64_t x =
      (seed + static_cast<std::uint64_t>(rank) * 0x9E3779B97F4A7C15) ^ (index * 0xD1B54A32D192ED03);
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
  const int drawn = static_cast<int>(x >> 61);  // 0 .. 7
  if (type == DataType::boolean) return drawn & 1;
  if (reduction == ReduceOp::product) return 1 + (drawn == 0 ? 1 : 0);
  if (reduction == ReduceOp::avg) return (drawn & 3) * ranks;  // averages are whole
  return drawn;
}

int Values::reduced(std::size_t index) const {
  int result = value(0, index);
  for (int r = 1; r < ranks; ++r) {
    const int next = value(r, index);
    switch (reduction) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result = type == DataType::boolean ? (result | next) : result + next;
        break;
      case ReduceOp::product:
        result = type == DataType::boolean ? (result & next) : result * next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      case ReduceOp::bit_and:
        result &= next;
        break;
      case ReduceOp::bit_or:
        result |= next;
        break;
      case ReduceOp::bit_xor:
        result ^= next;
        break;
    }
  }
  return reduction == ReduceOp::avg && type != DataType::boolean ? result / ranks : result;
}

bool Values::equal(const std::byte* element, int value) const {
  std::byte expected[kWidest];
  store(type, expected, value, reduction == ReduceOp::product);
  return std::memcmp(element, expected, size_of(type)) == 0;
}

void Values::write(void* data, int rank, std::size_t first, std::size_t count) const {
  auto* to = static_cast<std::byte*>(data);
  for (std::size_t i = 0; i < count; ++i)
    store(type, to + i * size_of(type), value(rank, first + i), reduction == ReduceOp::product);
}

std::size_t Values::wrong(const void* data, int rank, std::size_t first, std::size_t count) const {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) bad += !equal(from + i * size_of(type), value(rank, first + i));
  return bad;
}

std::size_t Values::wrong_reduced(const void* data, std::size_t first, std::size_t count) const {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) bad += !equal(from + i * size_of(type), reduced(first + i));
  return bad;
}

}  // namespace talweg::soak
