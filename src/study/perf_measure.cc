#include "study/perf_measure.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "base/fail.h"
#include "study/perf_check.h"
#include "study/perf_times.h"

namespace talweg::study {
namespace {

using Clock = std::chrono::steady_clock;
using Works = std::vector<WorkPtr>;

constexpr std::size_t kAlignment = 64;
constexpr int kPoison = 0xa5;  // what outputs hold before a checked call: what nobody wrote is seen

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Where a call reads and writes, in place or not (see talweg/group.h for what in place means).
struct Place {
  std::byte* in;
  std::byte* out;
};

Place place(const PerfCase& c, int rank, const PerfBuffers::Slot& slot, bool in_place) {
  if (!in_place || input_elements(c, rank) == 0 || output_elements(c, rank) == 0)
    return facts(c.op).one_buffer && in_place ? Place{slot.out, slot.out} : Place{slot.in, slot.out};
  const std::size_t own_part = static_cast<std::size_t>(rank) * c.count * size_of(c.type);
  if (facts(c.op).input == Extent::part) return {slot.out + own_part, slot.out};
  if (facts(c.op).output == Extent::part) return {slot.in, slot.in + own_part};
  return {slot.out, slot.out};
}

class Runner {
 public:
  Runner(Group& group, const PerfCase& c, const PerfOptions& options, bool in_place)
      : group_(group),
        c_(c),
        options_(options),
        in_place_(in_place),
        rank_(group.rank()),
        counts_(static_cast<std::size_t>(c.ranks), c.count),
        deadline_(Clock::now() + options.timeout) {}

  void start(const PerfBuffers::Slot& slot, Works& works) {
    const Place at = place(c_, rank_, slot, in_place_);
    Call call{.op = c_.op,
              .type = c_.type,
              .reduction = c_.reduce,
              .in = at.in,
              .out = at.out,
              .count = c_.count,
              .counts = counts_,
              .out_counts = counts_,
              .root = c_.root,
              .options = call_options()};
    // One buffer a call: out of place, the root sends its input and the others receive into their output.
    if (facts(c_.op).one_buffer && rank_ == c_.root) call.out = at.in;
    if (facts(c_.op).output ==
        Extent::peer) {  // round the ring: receive from the one before, send to the next
      call.root = (rank_ + c_.ranks - 1) % c_.ranks;
      call.peer = rank_;
      works.push_back(group_.start(call));
      call.root = rank_;
      call.peer = (rank_ + 1) % c_.ranks;
    }
    works.push_back(group_.start(call));
  }

  static void finish(Works& works) {
    for (auto& work : works) work->wait();
    works.clear();
  }

  void barrier() { group_.barrier(call_options()); }

 private:
  CallOptions call_options() const {
    CallOptions options;
    options.will_wait = options_.blocking != Blocking::enqueue;
    if (options_.timeout.count() == 0) return options;
    options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (options.timeout.count() <= 0)
      throw_error(ErrorCode::timeout, "{} of {} bytes took longer than the {} ms of -T", name(c_.op),
                  vector_bytes(c_), options_.timeout.count());
    return options;
  }

  Group& group_;
  const PerfCase& c_;
  const PerfOptions& options_;
  bool in_place_;
  int rank_;
  std::vector<std::size_t> counts_;
  Clock::time_point deadline_;
};

// Times in microseconds on this rank: of each iteration, and of all of them together.
struct LocalTimes {
  std::vector<double> iterations;
  double total = 0;
};

LocalTimes time_one_by_one(Runner& runner, const PerfCase& c, const PerfOptions& options,
                           const PerfBuffers& buffers) {
  LocalTimes times;
  times.iterations.reserve(static_cast<std::size_t>(options.iterations));
  Works works;
  const bool outside = options.blocking == Blocking::barrier_outside;
  const auto begin = Clock::now();
  auto last = begin;
  for (int i = 0; i < options.iterations; ++i) {
    if (outside) {
      runner.barrier();
      last = Clock::now();
    }
    for (std::size_t call = 0; call < static_cast<std::size_t>(options.aggregate); ++call)
      runner.start(buffers.slot(c, call), works);
    Runner::finish(works);
    if (options.blocking == Blocking::wait_barrier) runner.barrier();
    const auto now = Clock::now();
    times.iterations.push_back(microseconds(now - last));
    last = now;
  }
  times.total = microseconds(last - begin);
  if (outside) {
    times.total = 0;
    for (const double time : times.iterations) times.total += time;
  }
  return times;
}

// An iteration's time is from the end of the one before it: what it adds to the whole.
LocalTimes time_enqueued(Runner& runner, const PerfCase& c, const PerfOptions& options,
                         const PerfBuffers& buffers) {
  LocalTimes times;
  const auto aggregate = static_cast<std::size_t>(options.aggregate);
  const std::size_t in_flight = buffers.slots(c) / aggregate;
  std::deque<Works> flying;
  const auto begin = Clock::now();
  auto last = begin;
  const auto finish_oldest = [&] {
    Runner::finish(flying.front());
    flying.pop_front();
    const auto now = Clock::now();
    times.iterations.push_back(microseconds(now - last));
    last = now;
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.iterations); ++i) {
    if (flying.size() == in_flight) finish_oldest();
    flying.emplace_back();
    for (std::size_t call = 0; call < aggregate; ++call)
      runner.start(buffers.slot(c, i % in_flight * aggregate + call), flying.back());
  }
  while (!flying.empty()) finish_oldest();
  times.total = microseconds(last - begin);
  return times;
}

// Elements on this rank that are wrong after one call on fresh data.
std::uint64_t check_once(Runner& runner, const PerfCase& c, const PerfBuffers::Slot& slot, int rank,
                         bool in_place, std::uint64_t seed) {
  const std::size_t in = input_elements(c, rank), out = output_elements(c, rank);
  const Place call = place(c, rank, slot, in_place);
  std::memset(slot.out, kPoison, std::max(in, out) * size_of(c.type));
  write_input(c, rank, seed, call.in);
  Works works;
  runner.start(slot, works);
  Runner::finish(works);
  std::uint64_t wrong = count_wrong_output(c, rank, seed, call.out);
  const bool overwritten = in_place && out > 0;
  if (!overwritten && in > 0) wrong += count_wrong_input(c, rank, seed, call.in);
  return wrong;
}

}  // namespace

void PerfBuffers::Free::operator()(std::byte* data) const {
  std::free(data);
}

PerfBuffers::PerfBuffers(const PerfOptions& options, int ranks)
    : misaligned_(options.misaligned), least_slots_(static_cast<std::size_t>(options.aggregate)) {
  bytes_ = 0;
  for (const DataType type : options.types)
    for (const std::size_t size : options.sizes) {
      PerfCase c{.op = options.op, .type = type, .ranks = ranks};
      c.count = count_for(c.op, size, type, ranks);
      bytes_ = std::max(bytes_, stride(c) * least_slots_);
    }
  in_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_)));
  out_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_)));
  if (!in_ || !out_) throw_error(ErrorCode::system, "cannot allocate two buffers of {} bytes", bytes_);
  // Every page is there before anything is timed.
  std::memset(in_.get(), 0, bytes_);
  std::memset(out_.get(), 0, bytes_);
}

std::size_t PerfBuffers::stride(const PerfCase& c) const {
  const std::size_t bytes = vector_bytes(c) + (misaligned_ ? size_of(c.type) : 0);
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

std::size_t PerfBuffers::slots(const PerfCase& c) const {
  return std::max(least_slots_, bytes_ / stride(c));
}

PerfBuffers::Slot PerfBuffers::slot(const PerfCase& c, std::size_t index) const {
  const std::size_t offset = index * stride(c) + (misaligned_ ? size_of(c.type) : 0);
  return {in_.get() + offset, out_.get() + offset};
}

Timing measure(Group& group, const PerfCase& c, const PerfOptions& options, const PerfBuffers& buffers,
               bool in_place) {
  Runner runner(group, c, options, in_place);
  Works works;
  // What lies in the buffers decides how fast floating-point adds are (subnormals), so it is always the
  // pattern.
  const auto calls =
      static_cast<std::size_t>(options.iterations) * static_cast<std::size_t>(options.aggregate);
  const auto first = Pattern::of_rank(c, group.rank(), 0);
  for (std::size_t call = 0; call < std::min(buffers.slots(c), calls); ++call)
    first.write(place(c, group.rank(), buffers.slot(c, call), in_place).in, 0,
                input_elements(c, group.rank()));
  for (int i = 0; i < options.warmup; ++i) {
    for (std::size_t call = 0; call < static_cast<std::size_t>(options.aggregate); ++call)
      runner.start(buffers.slot(c, call), works);
    Runner::finish(works);
  }
  runner.barrier();
  LocalTimes times = options.blocking == Blocking::enqueue ? time_enqueued(runner, c, options, buffers)
                                                           : time_one_by_one(runner, c, options, buffers);
  runner.barrier();

  Timing timing = timing_of(group, options, std::move(times.iterations), times.total);
  if (options.check > 0) {
    std::uint64_t wrong = 0;
    for (int i = 0; i < options.check; ++i)
      wrong += check_once(runner, c, buffers.slot(c, 0), group.rank(), in_place,
                          static_cast<std::uint64_t>(i) + 1);
    group.all_reduce(&wrong, &wrong, 1, DataType::u64, ReduceOp::sum);
    timing.wrong = wrong;
  }
  return timing;
}

}  // namespace talweg::study
