#include "study/perf_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "kernel/reduce.h"
#include "study/perf_check.h"
#include "study/perf_times.h"
#include "talweg/sparse_rows.h"

namespace talweg::study {

namespace {

using Clock = std::chrono::steady_clock;

// Of a sum of one line: what ranks have, and what it comes to.
class RowsOfLine {
 public:
  RowsOfLine(const PerfCase& c, const RowsPerfOptions& how)
      : c_(c), how_(how), limit_(c.count / how.width), row_bytes_(how.width * size_of(c.type)) {}

  std::size_t limit() const { return limit_; }
  std::vector<std::int64_t> keys(int rank) const {
    std::vector<std::int64_t> keys;
    for (std::size_t key = 0; key < limit_; ++key)
      if (holds(how_.sparse, rank, c_.ranks, key)) keys.push_back(static_cast<std::int64_t>(key));
    return keys;
  }
  std::vector<std::byte> values(int rank, std::uint64_t seed, const std::vector<std::int64_t>& keys) const {
    const Pattern pattern = Pattern::of_rank(c_, rank, seed);
    std::vector<std::byte> values(keys.size() * row_bytes_);
    for (std::size_t i = 0; i < keys.size(); ++i)
      pattern.write(values.data() + i * row_bytes_, static_cast<std::size_t>(keys[i]) * how_.width,
                    how_.width);
    return values;
  }
  // Elements that are not what a serial sum gives; of other rows all.
  std::uint64_t count_wrong(const SparseRows& sum, std::uint64_t seed) const {
    std::vector<std::byte> all(limit_ * row_bytes_);
    std::vector<bool> held(limit_);
    const auto add = kernel::reduce_function(c_.type, ReduceOp::sum);
    for (int rank = 0; rank < c_.ranks; ++rank) {
      const std::vector<std::int64_t> own = keys(rank);
      const std::vector<std::byte> rows = values(rank, seed, own);
      for (std::size_t i = 0; i < own.size(); ++i) {
        const auto key = static_cast<std::size_t>(own[i]);
        std::byte* const to = all.data() + key * row_bytes_;
        if (held[key])
          add(to, to, rows.data() + i * row_bytes_, how_.width);
        else
          std::memcpy(to, rows.data() + i * row_bytes_, row_bytes_);
        held[key] = true;
      }
    }
    std::vector<std::int64_t> expected;
    for (std::size_t key = 0; key < limit_; ++key)
      if (held[key]) expected.push_back(static_cast<std::int64_t>(key));
    if (sum.keys != expected) return std::max(sum.keys.size(), expected.size()) * how_.width;
    std::uint64_t wrong = 0;
    const std::size_t element = size_of(c_.type);
    for (std::size_t i = 0; i < expected.size(); ++i)
      for (std::size_t at = 0; at < row_bytes_; at += element)
        wrong +=
            std::memcmp(sum.values.get() + i * row_bytes_ + at,
                        all.data() + static_cast<std::size_t>(expected[i]) * row_bytes_ + at, element) != 0
                ? 1
                : 0;
    return wrong;
  }

 private:
  const PerfCase& c_;
  const RowsPerfOptions& how_;
  const std::size_t limit_, row_bytes_;
};

}  // namespace

void check_rows_perf(const RowsPerfOptions& how, const PerfOptions& perf, int ranks) {
  if (perf.op != Collective::all_reduce)
    refuse("--sparse-rows: rows are summed by all_reduce, not by {}", name(perf.op));
  for (const ReduceOp reduce : perf.reductions)
    if (reduce != ReduceOp::sum) refuse("--sparse-rows: rows are summed: -o must be sum");
  if (perf.aggregate != 1) refuse("--sparse-rows: -m must be 1: a call blocks");
  if (perf.blocking == Blocking::enqueue) refuse("--sparse-rows: -z must not be 0: a call blocks");
  if (perf.misaligned) refuse("--sparse-rows: -u has no meaning for it");
  if (perf.may_lose) refuse("--sparse-rows: nothing may be lost of rows: expected no --may-lose");
  const double density = how.sparse.density;
  if (how.sparse.overlap == Overlap::none && density * ranks > 1)
    refuse(
        "--overlap none: {} ranks cannot have {} rows each and none in common: expected --sparse-density, up "
        "to 1/{}",
        ranks, density < 1 ? fmt::format("{} of all", density) : "all", ranks);
  rows_cases(how, perf, ranks);
}

std::vector<PerfCase> rows_cases(const RowsPerfOptions& how, const PerfOptions& perf, int ranks) {
  std::vector<PerfCase> cases;
  const std::vector<PerfCase> all = perf_cases(perf, ranks);
  for (PerfCase c : all) {
    c.count -= c.count % how.width;
    const bool again = !cases.empty() && cases.back().type == c.type && cases.back().count == c.count;
    if (c.count > 0 && !again) cases.push_back(c);
  }
  if (cases.empty())
    refuse("--sparse-rows {}: {} bytes hold no such row of {}", how.width, vector_bytes(all.back()),
           table_name(all.back().type));
  return cases;
}

std::string describe_rows(const RowsPerfOptions& how, int ranks) {
  constexpr std::uint64_t kRows = 100'000;
  constexpr const char* kOverlaps[] = {"random", "all", "none"};
  return fmt::format("rows of {} elements: {} of them on each rank, overlap {}: {:.3g} on any\n", how.width,
                     how.sparse.density, kOverlaps[static_cast<int>(how.sparse.overlap)],
                     union_density(how.sparse, ranks, kRows));
}

std::string RowsWays::describe() const {
  if (by_switch == 0 || by_switch == calls) return by_switch == 0 ? "trees" : "switch";
  return fmt::format("switch in {} of {} calls", by_switch, calls);
}

Timing measure_rows(Group& group, const PerfCase& c, const PerfOptions& options, const RowsPerfOptions& how,
                    RowsWays& ways) {
  const RowsOfLine rows(c, how);
  const std::vector<std::int64_t> keys = rows.keys(group.rank());
  std::vector<std::byte> values = rows.values(group.rank(), 0, keys);
  const auto until = Clock::now() + options.timeout;
  const auto run = [&] {
    RowsCall call{.keys = keys,
                  .values = values.data(),
                  .limit = static_cast<std::int64_t>(rows.limit()),
                  .width = how.width,
                  .type = c.type};
    if (options.timeout.count() > 0) {
      call.options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      if (call.options.timeout.count() <= 0)
        throw_error(ErrorCode::timeout, "all_reduce of {} bytes in rows took longer than the {} ms of -T",
                    vector_bytes(c), options.timeout.count());
    }
    try {
      return all_reduce_rows(group, call);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout || options.timeout.count() == 0) throw;
      throw_error(ErrorCode::timeout, "all_reduce of {} bytes in rows took longer than the {} ms of -T: {}",
                  vector_bytes(c), options.timeout.count(), e.what());
    }
  };
  for (int i = 0; i < options.warmup; ++i) run();
  group.barrier();
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < options.iterations; ++i) {
    if (options.blocking == Blocking::barrier_outside) group.barrier();
    const auto begin = Clock::now();
    const SparseRows sum = run();
    if (options.blocking == Blocking::wait_barrier) group.barrier();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    total += times.back();
    ++ways.calls;
    ways.by_switch += sum.by_switch ? 1 : 0;
  }
  group.barrier();
  Timing timing = timing_of(group, options, std::move(times), total);
  if (options.check == 0) return timing;
  std::uint64_t wrong = 0;
  for (int i = 0; i < options.check; ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + 1;
    values = rows.values(group.rank(), seed, keys);
    const std::vector<std::byte> given = values;
    wrong += rows.count_wrong(run(), seed);
    if (values != given) wrong += c.count;
  }
  group.all_reduce(&wrong, &wrong, 1, DataType::u64, ReduceOp::sum);
  timing.wrong = wrong;
  return timing;
}

}  // namespace talweg::study
