// The table of element types. A new type is a number in talweg/types.h, a row here, its arithmetic in
// kernel/scalar.h (with vectors where they pay: kernel/lanes-inl.h), and the names that bindings have for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "talweg/types.h"

namespace talweg {

enum class NumberKind : std::uint8_t { unsigned_integer, signed_integer, floating, complex, boolean };

struct DataTypeFacts {
  const char* name;
  std::size_t bytes;
  NumberKind kind;
  const char* table_name;  // in tables as nccl-tests print them
  int fraction_bits;       // of a floating number, or of each part of a complex one
  const char* spellings;   // further ones, of PyTorch, NumPy, NCCL and MPI; lower case, blanks in between
};

// Indexed by the enum's wire number.
// clang-format off
inline constexpr std::array<DataTypeFacts, kDataTypes> kDataTypeFacts{{
    {"u8",       1, NumberKind::unsigned_integer, "uint8",       0, "byte"},
    {"i8",       1, NumberKind::signed_integer,   "int8",        0, "char"},
    {"u16",      2, NumberKind::unsigned_integer, "uint16",      0, ""},
    {"i16",      2, NumberKind::signed_integer,   "int16",       0, "short"},
    {"u32",      4, NumberKind::unsigned_integer, "uint32",      0, ""},
    {"i32",      4, NumberKind::signed_integer,   "int32",       0, "int"},
    {"u64",      8, NumberKind::unsigned_integer, "uint64",      0, ""},
    {"i64",      8, NumberKind::signed_integer,   "int64",       0, "long"},
    {"f16",      2, NumberKind::floating,         "half",       10, "float16 fp16"},
    {"bf16",     2, NumberKind::floating,         "bfloat16",    7, ""},
    {"f32",      4, NumberKind::floating,         "float",      23, "float32 fp32 single"},
    {"f64",      8, NumberKind::floating,         "double",     52, "float64 fp64"},
    {"c64",      8, NumberKind::complex,          "complex64",  23, ""},
    {"c128",    16, NumberKind::complex,          "complex128", 52, ""},
    {"boolean",  1, NumberKind::boolean,          "bool",        0, ""},
}};
// clang-format on

constexpr const DataTypeFacts& facts(DataType type) {
  return kDataTypeFacts[static_cast<std::size_t>(type)];
}

}  // namespace talweg
