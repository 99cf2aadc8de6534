#include "kernel/merge.h"

#include <algorithm>
#include <cstring>

#include "kernel/reduce.h"

namespace talweg::kernel {

bool are_keys(std::span<const std::int64_t> keys, std::int64_t limit) {
  std::int64_t last = -1;
  bool ascending = true;
  for (const std::int64_t key : keys) {
    ascending = ascending && key > last;
    last = key;
  }
  return ascending && last < limit;
}

std::size_t merge_rows(std::span<KeyedRows> streams, DataType type, std::size_t width, std::int64_t* keys,
                       void* rows) {
  const std::size_t row_bytes = width * size_of(type);
  const auto add = reduce_function(type, ReduceOp::sum);
  auto* row = static_cast<char*>(rows);
  std::size_t merged = 0;
  while (true) {
    const KeyedRows* least = nullptr;
    for (const KeyedRows& stream : streams)
      if (stream.count != 0 && (least == nullptr || *stream.keys < *least->keys)) least = &stream;
    if (least == nullptr) return merged;
    const std::int64_t key = *least->keys;
    bool first = true;
    for (KeyedRows& stream : streams) {
      if (stream.count == 0 || *stream.keys != key) continue;
      if (first) {
        std::memcpy(row, stream.rows, row_bytes);
      } else {
        add(row, row, stream.rows, width);
      }
      first = false;
      ++stream.keys;
      stream.rows = static_cast<const char*>(stream.rows) + row_bytes;
      --stream.count;
    }
    keys[merged++] = key;
    row += row_bytes;
  }
}

}  // namespace talweg::kernel
