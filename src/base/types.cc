#include "talweg/types.h"

#include <array>
#include <string>

#include "base/collectives.h"
#include "base/data_types.h"

namespace talweg {
namespace {

constexpr std::array<const char*, kReduceOps> kReduceOpNames{"sum",     "product", "min",     "max",
                                                             "bit_and", "bit_or",  "bit_xor", "avg"};

template <typename Enum>
struct Spelling {
  std::string_view text;  // already normalised
  Enum value;
};

// Of PyTorch, NumPy, NCCL, nccl-tests and MPI, beyond our own names.
constexpr Spelling<DataType> kDataTypeSpellings[] = {
    {"uint8", DataType::u8},      {"byte", DataType::u8},         {"int8", DataType::i8},
    {"char", DataType::i8},       {"uint16", DataType::u16},      {"int16", DataType::i16},
    {"short", DataType::i16},     {"uint32", DataType::u32},      {"int32", DataType::i32},
    {"int", DataType::i32},       {"uint64", DataType::u64},      {"int64", DataType::i64},
    {"long", DataType::i64},      {"half", DataType::f16},        {"float16", DataType::f16},
    {"fp16", DataType::f16},      {"bfloat16", DataType::bf16},   {"float", DataType::f32},
    {"float32", DataType::f32},   {"fp32", DataType::f32},        {"single", DataType::f32},
    {"double", DataType::f64},    {"float64", DataType::f64},     {"fp64", DataType::f64},
    {"complex64", DataType::c64}, {"complex128", DataType::c128}, {"bool", DataType::boolean}};
constexpr Spelling<ReduceOp> kReduceOpSpellings[] = {{"prod", ReduceOp::product}, {"minimum", ReduceOp::min},
                                                     {"maximum", ReduceOp::max},  {"band", ReduceOp::bit_and},
                                                     {"bor", ReduceOp::bit_or},   {"bxor", ReduceOp::bit_xor},
                                                     {"mean", ReduceOp::avg},     {"average", ReduceOp::avg}};
constexpr Spelling<Collective> kCollectiveSpellings[] = {
    {"bcast", Collective::broadcast}, {"sendreceive", Collective::send_recv}, {"p2p", Collective::send_recv}};

// "All-Reduce", "all_reduce" and "allreduce" are one word to us.
std::string normalised(std::string_view text) {
  std::string word;
  for (const char c : text) {
    if (c == '_' || c == '-') continue;
    word += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return word;
}

template <typename Enum, std::size_t n>
std::optional<Enum> parse(std::string_view text, int values, const Spelling<Enum> (&spellings)[n]) {
  const std::string word = normalised(text);
  for (int i = 0; i < values; ++i) {
    const auto value = static_cast<Enum>(i);
    if (word == normalised(name(value))) return value;
  }
  for (const auto& spelling : spellings) {
    if (word == spelling.text) return spelling.value;
  }
  return std::nullopt;
}

}  // namespace

// Values from the wire are checked where they are decoded; here an unknown one is merely not undefined
// behaviour.
std::size_t size_of(DataType type) {
  const auto i = static_cast<std::size_t>(type);
  return i < kDataTypeFacts.size() ? kDataTypeFacts[i].bytes : 0;
}

const char* name(DataType type) {
  const auto i = static_cast<std::size_t>(type);
  return i < kDataTypeFacts.size() ? kDataTypeFacts[i].name : "unknown";
}

const char* name(ReduceOp op) {
  const auto i = static_cast<std::size_t>(op);
  return i < kReduceOpNames.size() ? kReduceOpNames[i] : "unknown";
}

const char* name(Collective op) {
  const auto i = static_cast<std::size_t>(op);
  return i < kCollectiveFacts.size() ? kCollectiveFacts[i].name : "unknown";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  return parse(text, kDataTypes, kDataTypeSpellings);
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return parse(text, kReduceOps, kReduceOpSpellings);
}

std::optional<Collective> parse_collective(std::string_view text) {
  return parse(text, kCollectives, kCollectiveSpellings);
}

}  // namespace talweg
