#include "study/perf_bounded.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/fail.h"
#include "kernel/reduce.h"
#include "protocol/bounded/adaptive_deadline.h"
#include "protocol/bounded/loss_budget.h"
#include "study/perf_check.h"
#include "study/perf_times.h"

namespace talweg::study {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPoisonOfSums = 0xa5;

// The calls of one side of one line.
class BoundedSide {
 public:
  BoundedSide(Group& group, BoundedSums& sums, const PerfCase& c, const PerfOptions& options,
              const PerfBuffers::Slot& slot, bool in_place)
      : group_(group),
        sums_(sums),
        c_(c),
        options_(options),
        slot_(slot),
        in_place_(in_place),
        limits_(options, sums.part_of(group.rank(), c.count).count * size_of(c.type),
                c.count * size_of(c.type)),
        deadline_(Clock::now() + options.timeout) {}

  std::byte* out() const { return slot_.out; }
  std::byte* in() const { return in_place_ ? slot_.out : slot_.in; }
  void fill(std::uint64_t seed) const { write_input(c_, group_.rank(), seed, in()); }
  LossReport run(void* residual = nullptr) {
    LossReport report = sums_.all_reduce({.in = in(),
                                          .out = slot_.out,
                                          .count = c_.count,
                                          .type = c_.type,
                                          .reduction = c_.reduce,
                                          .residual = residual,
                                          .timeout = time_left()});
    const std::size_t part = report.by_switch ? c_.count : sums_.part_of(group_.rank(), c_.count).count;
    beyond_ += lost_beyond(report, c_, part, *options_.may_lose);
    limits_.add(report);
    return report;
  }
  std::uint64_t beyond() const {
    return beyond_ + (limits_.bytes() + size_of(c_.type) - 1) / size_of(c_.type);
  }

  // Elements on this rank that are wrong after a call on fresh data.
  std::uint64_t check_once(std::uint64_t seed) {
    std::vector<std::byte> residual(c_.count * size_of(c_.type));
    std::memset(slot_.out, kPoisonOfSums, residual.size());
    fill(seed);
    run(residual.data());
    group_.all_reduce(residual.data(), residual.data(), c_.count, c_.type, ReduceOp::sum);
    kernel::reduce_function(c_.type, ReduceOp::sum)(slot_.out, slot_.out, residual.data(), c_.count);
    std::uint64_t wrong = count_wrong_output(c_, group_.rank(), seed, slot_.out);
    if (!in_place_) wrong += count_wrong_input(c_, group_.rank(), seed, slot_.in);
    return wrong;
  }

 private:
  std::chrono::milliseconds time_left() const {
    if (options_.timeout.count() == 0) return {};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0)
      throw_error(ErrorCode::timeout, "{} of {} bytes took longer than the {} ms of -T", name(c_.op),
                  vector_bytes(c_), options_.timeout.count());
    return left;
  }

  Group& group_;
  BoundedSums& sums_;
  const PerfCase& c_;
  const PerfOptions& options_;
  PerfBuffers::Slot slot_;
  bool in_place_;
  LostBeyondLimits limits_;
  Clock::time_point deadline_;
  std::uint64_t beyond_ = 0;
};

}  // namespace

LostPart LostBytes::part() const {
  const auto over = [](std::uint64_t a, std::uint64_t b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0;
  };
  return {over(lost, sent), over(lost_important, lost), false, calls, calls_by_switch};
}

void check_bounded_perf(const PerfOptions& options) {
  if (options.op != Collective::all_reduce)
    refuse("--may-lose: a part may be lost of all_reduce, not of {}", name(options.op));
  for (const ReduceOp reduce : options.reductions)
    if (reduce != ReduceOp::sum) refuse("--may-lose: -o must be sum, of which parts are known");
  for (const DataType type : options.types)
    if (type != DataType::f16 && type != DataType::bf16 && type != DataType::f32 && type != DataType::f64)
      refuse("--may-lose: a part may be lost of half, bfloat16, float and double, not of {}",
             table_name(type));
  if (options.aggregate != 1) refuse("--may-lose: -m must be 1: these sums have one call at a time");
  if (options.blocking == Blocking::enqueue)
    refuse("--may-lose: -z must not be 0: these sums have one call at a time");
}

std::uint64_t lost_beyond(const LossReport& report, const PerfCase& c, std::size_t part, double may_lose) {
  const std::size_t element = size_of(c.type);
  const std::size_t own = part * element;
  const auto millionths =
      static_cast<std::uint64_t>(may_lose * protocol::kMillion + 1e-6);  // as the sums count
  const std::uint64_t most = millionths * own / protocol::kMillion;
  std::uint64_t beyond = 0;
  for (const std::uint64_t missing : report.lost_of_sender)
    if (missing > most) beyond += (missing - most + element - 1) / element;
  return beyond;
}

LostBeyondLimits::LostBeyondLimits(const PerfOptions& options, std::size_t part, std::size_t whole)
    : bounds_([&] {
        auto bounds =
            protocol::bounds_of({*options.may_lose, options.may_lose_sender, options.may_lose_call});
        // What is not given is --may-lose, which lost_beyond() looks at.
        if (!options.may_lose_sender) bounds.sender_ppm = protocol::kMillion;
        if (!options.may_lose_call) bounds.iteration_ppm = protocol::kMillion;
        return bounds;
      }()),
      part_(part),
      whole_(whole) {}

void LostBeyondLimits::add(const LossReport& report) {
  const auto beyond = [](std::uint64_t lost, std::uint64_t of, std::uint64_t ppm) {
    constexpr std::uint64_t kAll = protocol::kMillion;
    const std::uint64_t most = of / kAll * ppm + of % kAll * ppm / kAll;  // of * ppm may not fit
    return lost > most ? lost - most : 0;
  };
  lost_.resize(report.lost_of_sender.size());
  const std::uint64_t own = report.by_switch ? whole_ : part_;
  sent_ += own;
  std::uint64_t together = 0, beyond_average = 0;
  for (std::size_t r = 0; r < lost_.size(); ++r) {
    together += report.lost_of_sender[r];
    lost_[r] += report.lost_of_sender[r];
    // What was not lost before these calls may be lost in them, too.
    beyond_average += beyond(lost_[r], sent_ + (bounds_.burst - 1) * own, bounds_.sender_ppm);
  }
  beyond_sender_ = std::max(beyond_sender_, beyond_average);
  const std::uint64_t others = std::max<std::uint64_t>(lost_.size(), 2) - 1;
  beyond_call_ += beyond(together, others * own, bounds_.iteration_ppm);
}

Timing measure_bounded(Group& group, BoundedSums& sums, const PerfCase& c, const PerfOptions& options,
                       const PerfBuffers& buffers, bool in_place, LostBytes& lost) {
  BoundedSide side(group, sums, c, options, buffers.slot(c, 0), in_place);
  const auto run = [&] {
    // In place a sum is the next one's input, and would grow to infinity, of which nothing may be lost.
    if (in_place) side.fill(0);
    if (in_place || options.blocking == Blocking::barrier_outside) group.barrier();
    const auto begin = Clock::now();
    const LossReport report = side.run();
    if (options.blocking == Blocking::wait_barrier) group.barrier();
    return std::pair{std::chrono::duration<double, std::micro>(Clock::now() - begin).count(), report};
  };
  side.fill(0);
  // In place is the second side: it is known already how long transfers take.
  const int exact = in_place ? 0 : static_cast<int>(protocol::AdaptiveDeadline::kWarmUp);
  for (int i = 0; i < exact + options.warmup; ++i) run();
  group.barrier();
  std::vector<double> times;
  double total = 0;
  std::uint64_t bytes[3] = {};
  for (int i = 0; i < options.iterations; ++i) {
    const auto [time, report] = run();
    times.push_back(time);
    total += time;
    bytes[0] += report.sent_bytes;
    bytes[1] += report.lost_bytes;
    bytes[2] += report.lost_important_bytes;
    ++lost.calls;
    lost.calls_by_switch += report.by_switch ? 1 : 0;
  }
  group.barrier();
  Timing timing = timing_of(group, options, std::move(times), total);
  group.all_reduce(bytes, bytes, 3, DataType::u64, ReduceOp::sum);
  lost.sent += bytes[0];
  lost.lost += bytes[1];
  lost.lost_important += bytes[2];
  if (options.check == 0) return timing;
  std::uint64_t wrong = 0;
  for (int i = 0; i < options.check; ++i) wrong += side.check_once(static_cast<std::uint64_t>(i) + 1);
  wrong += side.beyond();
  group.all_reduce(&wrong, &wrong, 1, DataType::u64, ReduceOp::sum);
  timing.wrong = wrong;
  return timing;
}

}  // namespace talweg::study
