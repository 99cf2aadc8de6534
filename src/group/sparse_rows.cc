// Sums of sparse tensors (include/talweg/sparse_rows.h): by the group's switches, or every rank gathers
// everybody's rows and adds them up in rank order, streams that are sorted merged by key.
//
// What is gathered second depends on what came first: so the call blocks, and all ranks' calls stay in one
// order, which a chain of callbacks would not.
#include "talweg/sparse_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "group/group_impl.h"
#include "group/row_words.h"
#include "group/rows_switch.h"
#include "kernel/merge.h"
#include "live/system.h"

namespace talweg {

namespace {

using group::GroupImpl;
using group::kRowWords;
using group::RowsSwitch;
using group::RowWords;

constexpr const char* kWhat = "all_reduce of a sparse tensor";

void check(const RowsCall& call) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 62;
  if (call.limit < 0) refuse("{}: {} rows", kWhat, call.limit);
  if (call.shape.size() > RowsCall::kMostShape)
    refuse("{}: a shape of {} numbers: expected up to {}", kWhat, call.shape.size(), RowsCall::kMostShape);
  const std::size_t row = std::max<std::size_t>(call.width, 1);
  if (call.width > kMostBytes / size_of(call.type) ||
      call.keys.size() > kMostBytes / size_of(call.type) / row)
    refuse("{}: {} rows of {} elements are more than 2^62 bytes", kWhat, call.keys.size(), call.width);
  if (call.values == nullptr && !call.keys.empty() && call.width > 0)
    refuse("{}: the values are null but {} rows are needed", kWhat, call.keys.size());
  if (!kernel::are_keys(call.keys, call.limit))
    refuse("{}: keys are out of order or out of range: expected 0 to {}, ascending", kWhat, call.limit - 1);
}

RowWords words_of(const RowsCall& call) {
  RowWords words;
  std::ranges::copy(call.shape, words.shape.begin());
  words.dimensions = static_cast<std::int64_t>(call.shape.size());
  words.limit = call.limit;
  words.width = static_cast<std::int64_t>(call.width);
  words.type = static_cast<std::int64_t>(call.type);
  words.count = static_cast<std::int64_t>(call.keys.size());
  return words;
}

void agree(const Group& group, const RowsCall& call, const std::vector<RowWords>& all) {
  const auto own = static_cast<std::size_t>(group.rank());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].fits(all[own]))
      throw_error(
          ErrorCode::mismatch,
          "ranks {} and {} disagree about size, type or sparse dimensions in {} (here: {} rows of {} {})",
          own, rank, kWhat, call.limit, call.width, name(call.type));
}

// `mine` of every rank, one behind the other, where `counts` says how many elements each has.
template <typename T>
std::unique_ptr<T[]> gather_all(Group& group, const T* mine, std::span<const std::size_t> counts,
                                DataType type, const CallOptions& options) {
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  auto gathered = std::make_unique_for_overwrite<T[]>(all * size_of(type) / sizeof(T));
  group.all_gather(mine, gathered.get(), counts, type, options);
  return gathered;
}

// Of a call that may take until then; 0: each of its messages may take as long as the call.
CallOptions left(CallOptions options, std::int64_t deadline_ns) {
  if (deadline_ns == 0) return options;
  const auto ms = (deadline_ns - live::now_ns()) / live::kMillisecondNs;
  options.timeout = std::chrono::milliseconds(std::max<std::int64_t>(ms, 1));
  return options;
}

SparseRows sum_by_trees(Group& group, const RowsCall& call, const std::vector<RowWords>& said,
                        std::int64_t deadline_ns) {
  std::vector<std::size_t> key_counts, value_counts;
  std::size_t rows = 0;
  for (const RowWords& words : said) {
    key_counts.push_back(static_cast<std::size_t>(words.count));
    value_counts.push_back(key_counts.back() * call.width);
    rows += key_counts.back();
  }
  auto keys = gather_all(group, call.keys.data(), key_counts, DataType::i64, left(call.options, deadline_ns));
  auto values = gather_all(group, static_cast<const std::byte*>(call.values), value_counts, call.type,
                           left(call.options, deadline_ns));
  const std::size_t row_bytes = call.width * size_of(call.type);
  std::vector<kernel::KeyedRows> streams;
  const std::int64_t* key = keys.get();
  const std::byte* row = values.get();
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const std::size_t count = key_counts[rank];
    if (!kernel::are_keys({key, count}, call.limit))
      throw_error(ErrorCode::corrupted, "rank {} has sent keys that are out of order or out of range in {}",
                  rank, kWhat);
    streams.push_back({key, row, count});
    key += count;
    row += count * row_bytes;
  }
  SparseRows sum;
  sum.keys.resize(rows);
  sum.values = std::make_unique_for_overwrite<std::byte[]>(rows * row_bytes);
  sum.keys.resize(kernel::merge_rows(streams, call.type, call.width, sum.keys.data(), sum.values.get()));
  if (sum.keys.size() == rows) return sum;
  // Rows that ranks have in common took room for each of them.
  keys.reset();
  values.reset();
  sum.keys.shrink_to_fit();
  auto exact = std::make_unique_for_overwrite<std::byte[]>(sum.keys.size() * row_bytes);
  if (!sum.keys.empty()) std::memcpy(exact.get(), sum.values.get(), sum.keys.size() * row_bytes);
  sum.values = std::move(exact);
  return sum;
}

// Empty: by trees.
std::optional<SparseRows> sum_by_switch(RowsSwitch& by_switch, const RowsCall& call,
                                        const std::vector<RowWords>& said, std::int64_t deadline_ns) {
  if (!by_switch.decide(call, said)) return std::nullopt;
  auto summed = by_switch.sum(call, deadline_ns);
  if (!summed) return std::nullopt;
  return SparseRows{std::move(summed->keys), std::move(summed->values), true};
}

}  // namespace

SparseRows all_reduce_rows(Group& group, const RowsCall& call) {
  check(call);
  auto* const own = dynamic_cast<GroupImpl*>(&group);
  RowsSwitch* const by_switch = own == nullptr ? nullptr : own->rows_switch();
  const std::int64_t deadline_ns = own == nullptr ? 0 : live::now_ns() + own->timeout_ns(call.options);
  RowsSwitch::Turn turn;
  if (by_switch != nullptr) turn = by_switch->turn(deadline_ns);
  RowWords mine = words_of(call);
  std::vector<RowWords> said(static_cast<std::size_t>(group.size()));
  const std::vector<std::size_t> counts(said.size(), kRowWords);
  if (by_switch != nullptr) by_switch->line_up(call, mine);
  try {
    group.all_gather(&mine, said.data(), counts, DataType::i64, left(call.options, deadline_ns));
    agree(group, call, said);
  } catch (const Error& e) {
    if (by_switch != nullptr) by_switch->leave(e.code() == ErrorCode::mismatch);
    throw;
  } catch (...) {
    if (by_switch != nullptr) by_switch->leave(false);
    throw;
  }
  std::optional<SparseRows> sum;
  if (by_switch != nullptr) sum = sum_by_switch(*by_switch, call, said, deadline_ns);
  if (!sum) sum = sum_by_trees(group, call, said, deadline_ns);
  if (by_switch != nullptr) by_switch->learn(call, said, sum->keys.size());
  return std::move(*sum);
}

}  // namespace talweg
