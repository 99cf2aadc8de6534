#include "talweg/types.h"

#include <algorithm>
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

// `words` have blanks between them.
bool is_among(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (word == words.substr(0, end)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
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
  const std::string word = normalised(text);
  for (std::size_t i = 0; i < kDataTypeFacts.size(); ++i) {
    const DataTypeFacts& type = kDataTypeFacts[i];
    if (word == type.name || word == type.table_name || is_among(word, type.spellings))
      return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return parse(text, kReduceOps, kReduceOpSpellings);
}

std::optional<Collective> parse_collective(std::string_view text) {
  return parse(text, kCollectives, kCollectiveSpellings);
}

}  // namespace talweg
