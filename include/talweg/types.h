// What travels and what is done with it: element types, reductions, collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace talweg {

// Element types. The numbers are part of the wire format: append only.
enum class DataType : std::uint8_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  u64 = 6,
  i64 = 7,
  f16 = 8,   // IEEE binary16; arithmetic in float32
  bf16 = 9,  // bfloat16; arithmetic in float32
  f32 = 10,
  f64 = 11,
  c64 = 12,      // two f32: real, imaginary
  c128 = 13,     // two f64
  boolean = 14,  // one byte, 0 or 1: sum and max are OR, product and min are AND
};
inline constexpr int kDataTypes = 15;

// Reductions. The numbers are part of the wire format: append only.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  product = 1,
  min = 2,
  max = 3,
  bit_and = 4,
  bit_or = 5,
  bit_xor = 6,
  avg = 7,  // sum, then divided by the number of contributors at the root (integers: truncated toward zero)
};
inline constexpr int kReduceOps = 8;

// Collectives. The numbers are part of the wire format: append only.
enum class Collective : std::uint8_t {
  all_reduce = 0,
  reduce = 1,
  broadcast = 2,
  reduce_scatter = 3,
  all_gather = 4,
  all_to_all = 5,
  gather = 6,
  scatter = 7,
  send_recv = 8,
  barrier = 9,
};
inline constexpr int kCollectives = 10;

std::size_t size_of(DataType type);  // bytes of one element

// Names as in the enums above ("f32", "sum", "all_reduce"); static strings.
const char* name(DataType type);
const char* name(ReduceOp op);
const char* name(Collective op);

// The inverse; also understand the field's other spellings ("float", "float32", "half", "prod", "allreduce",
// "all-reduce"). Empty when unknown.
std::optional<DataType> parse_data_type(std::string_view text);
std::optional<ReduceOp> parse_reduce_op(std::string_view text);
std::optional<Collective> parse_collective(std::string_view text);

}  // namespace talweg
