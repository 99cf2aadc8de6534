// PyTorch profiler traces, one for each rank, joined into a job.
//
// Layers' times are means over ranks and steps. Of a transfer, what the rank took that was in it for the
// least time went over the wire, as the last one to come waits for nobody; what the others took beyond that
// was a wait for peers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "train/traces/importers.h"
#include "train/traces/kineto_steps.h"

namespace talweg::train {
namespace {

// Times the median, or one over it: a step so long or so short tells of a clock that jumped, or of something
// else that ran in it, such as a checkpoint.
constexpr double kFarFromMedian = 10;
constexpr std::int64_t kMostSkew = 60'000'000'000;  // ns between clocks of two machines of one run

struct Rank {
  std::string path;
  int rank = -1, world = 0;
  std::int64_t pid = -1, begin = 0, end = 0;  // ns, of the clock
  bool has_clock = false, has_marks = false;
  bool world_of_groups = false;  // for want of distributedInfo
  RankSteps steps{};
};

Rank read_rank(const std::string& path, const std::vector<ExecutionSizes>& sizes, std::vector<bool>& used,
               const OnRead& on_read) {
  const KinetoTrace trace = read_kineto(path, sizes, on_read);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i].pid == trace.pid) used[i] = true;
  Rank r{.path = path, .rank = trace.rank, .world = trace.world, .pid = trace.pid};
  if (r.world == 0 && trace.largest_group > 0) {
    r.world = trace.largest_group;
    r.world_of_groups = true;
  }
  r.has_clock = trace.base > 0;
  r.begin = trace.base + trace.first;
  r.end = trace.base + trace.last;
  r.has_marks = trace.has_step_marks();
  r.steps = steps_of(trace);
  return r;
}

[[noreturn]] void different_runs(const Rank& a, const Rank& b, const std::string& why) {
  throw_error(ErrorCode::bad_file, "{}: not of the run of {}: {}", b.path, a.path, why);
}

void check_of_two_ranks(const Rank& a, const Rank& b) {
  if (a.rank >= 0 && a.rank == b.rank)
    throw_error(ErrorCode::bad_file, "{}: is of rank {}, as {} is: expected one file for each rank", b.path,
                b.rank, a.path);
  if (a.rank < 0 && b.rank < 0 && a.pid == b.pid && a.begin == b.begin)
    throw_error(ErrorCode::bad_file, "{}: is of the same process as {}: expected one file for each rank",
                b.path, a.path);
}

void check_of_one_run(const Rank& a, const Rank& b) {
  if (a.world != b.world) different_runs(a, b, fmt::format("world sizes {} and {}", a.world, b.world));
  if (a.has_clock && b.has_clock && (a.end + kMostSkew < b.begin || b.end + kMostSkew < a.begin))
    different_runs(a, b, "the two were recorded at different times");
  const StepShape &x = a.steps.shape, &y = b.steps.shape;
  if (x.layers != y.layers)
    different_runs(a, b, fmt::format("models of {} and {} layers", x.layers.size(), y.layers.size()));
  if (x.gradients != y.gradients) different_runs(a, b, "layers with gradients of other sizes");
  if (x.transfers.size() != y.transfers.size())
    different_runs(a, b,
                   fmt::format("{} and {} transfers in a step", x.transfers.size(), y.transfers.size()));
  for (std::size_t i = 0; i < x.transfers.size(); ++i)
    if (x.transfers[i].op != y.transfers[i].op || x.transfers[i].bytes != y.transfers[i].bytes)
      different_runs(a, b,
                     fmt::format("transfer {} of a step is {} of {} B there and {} of {} B here", i,
                                 name(x.transfers[i].op), x.transfers[i].bytes, name(y.transfers[i].op),
                                 y.transfers[i].bytes));
}

// One of each rank in a row.
using StepRows = std::vector<std::vector<const StepTimes*>>;

// Leaves out, of all ranks, the steps that take kFarFromMedian on one of them. Of two steps none is the odd
// one, nor is any where each is far on some rank: such a trace is refused.
void leave_out_far_ones(StepRows& rows, const std::vector<Rank>& ranks, std::vector<std::string>& notes) {
  std::vector<std::int64_t> times;
  for (const auto& row : rows)
    for (const StepTimes* s : row) times.push_back(s->step);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  const auto median = static_cast<double>(*middle);
  const auto is_far = [&](const StepTimes* s) {
    const auto time = static_cast<double>(s->step);
    return time > kFarFromMedian * median || time * kFarFromMedian < median;
  };
  StepRows near;
  std::int64_t longest = 0, shortest = *middle;
  std::size_t rank_of_longest = 0;
  for (const auto& row : rows) {
    if (std::ranges::none_of(row, is_far)) near.push_back(row);
    for (std::size_t r = 0; r < row.size(); ++r) {
      if (row[r]->step > longest) rank_of_longest = r;
      longest = std::max(longest, row[r]->step);
      shortest = std::min(shortest, row[r]->step);
    }
  }
  const bool alike = static_cast<double>(longest) <= kFarFromMedian * static_cast<double>(shortest);
  if (!alike && (rows.size() < 3 || near.empty()))
    throw_error(
        ErrorCode::bad_file,
        "{}: a step takes {}, and another {}: the clock jumped, or something else ran in it: expected "
        "at least three steps, most of them alike",
        ranks[rank_of_longest].path, to_string(Nanoseconds{longest}), to_string(Nanoseconds{shortest}));
  if (near.size() == rows.size()) return;
  notes.push_back(fmt::format(
      "{} of {} steps are left out: they take {:.3g} times the median, {}, or a {}th of it ({} to {} "
      "are there): the clock jumped, or something else ran in them",
      rows.size() - near.size(), rows.size(), kFarFromMedian, to_string(Nanoseconds{*middle}), kFarFromMedian,
      to_string(Nanoseconds{shortest}), to_string(Nanoseconds{longest})));
  rows = std::move(near);
}

// The steps that all ranks have.
StepRows common_steps(const std::vector<Rank>& ranks) {
  const bool by_number = std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.has_marks; });
  std::size_t least = ranks[0].steps.steps.size();
  for (const Rank& r : ranks) least = std::min(least, r.steps.steps.size());
  std::map<std::int64_t, std::vector<const StepTimes*>> rows;
  for (const Rank& r : ranks) {
    const std::size_t skip = by_number ? 0 : r.steps.steps.size() - least;
    for (std::size_t i = skip; i < r.steps.steps.size(); ++i)
      rows[by_number ? r.steps.steps[i].number : static_cast<std::int64_t>(i - skip)].push_back(
          &r.steps.steps[i]);
  }
  StepRows common;
  for (auto& [number, row] : rows)
    if (row.size() == ranks.size()) common.push_back(std::move(row));
  if (common.empty()) different_runs(ranks[0], ranks[1], "no step is in both");
  return common;
}

// Means over all steps of all ranks.
class Mean {
 public:
  explicit Mean(const StepRows& steps) : steps_(steps) {}
  template <class Of>
  Nanoseconds operator()(Of&& of) const {
    __extension__ __int128 sum = 0;
    std::int64_t count = 0;
    for (const auto& row : steps_)
      for (const StepTimes* s : row) {
        sum += of(*s);
        ++count;
      }
    return {static_cast<std::int64_t>((sum + count / 2) / count)};
  }

 private:
  const StepRows& steps_;
};

std::int64_t rounded(double value) {
  return std::llround(value);
}

void add_exchanges(TraceJob& read, const StepShape& shape, const StepRows& steps) {
  double all_waits = 0;
  for (std::size_t i = 0; i < shape.transfers.size(); ++i) {
    double time = 0, wait = 0;
    for (const auto& row : steps) {
      std::int64_t least = row[0]->transfers[i];
      double sum = 0;
      for (const StepTimes* s : row) {
        least = std::min(least, s->transfers[i]);
        sum += static_cast<double>(s->transfers[i]);
      }
      time += static_cast<double>(least);
      wait += sum / static_cast<double>(row.size()) - static_cast<double>(least);
    }
    const auto count = static_cast<double>(steps.size());
    const StepShape::Transfer& t = shape.transfers[i];
    read.job.exchanges.push_back(
        {t.op, t.layers, {t.bytes}, {rounded(time / count)}, {rounded(wait / count)}});
    all_waits += wait / count;
  }
  read.peer_wait = {rounded(all_waits)};
}

void add_times(TraceJob& read, const StepRows& steps, const StepShape& shape) {
  const Mean mean(steps);
  Job& job = read.job;
  job.step = mean([](const StepTimes& s) { return s.step; });
  job.input = mean([](const StepTimes& s) { return s.input; });
  job.copy = mean([](const StepTimes& s) { return s.copy; });
  job.update = mean([](const StepTimes& s) { return s.update; });
  read.exposed = mean([](const StepTimes& s) { return s.exposed; });
  read.launch_gaps = mean([](const StepTimes& s) { return s.launch_gap; });
  read.stream_gaps = mean([](const StepTimes& s) { return s.stream_gap; });
  for (std::size_t i = 0; i < shape.layers.size(); ++i)
    job.layers.push_back({.name = shape.layers[i],
                          .forward = mean([&](const StepTimes& s) { return s.layers[i].forward; }),
                          .backward = mean([&](const StepTimes& s) { return s.layers[i].backward; }),
                          .forward_gap = mean([&](const StepTimes& s) { return s.layers[i].forward_gap; }),
                          .backward_gap = mean([&](const StepTimes& s) { return s.layers[i].backward_gap; }),
                          .gradient = {shape.gradients[i]}});
  std::int64_t known = job.input.value + job.copy.value + job.update.value + read.exposed.value;
  std::int64_t busy = job.copy.value + job.update.value;
  for (const Layer& l : job.layers) {
    busy += l.forward.value + l.backward.value;
    known += l.forward.value + l.backward.value + l.forward_gap.value + l.backward_gap.value;
  }
  read.busy = {busy};
  // Steps differ in which transfers happen to meet: what most of them saw.
  std::vector<int> in_flight;
  for (const auto& row : steps)
    for (const StepTimes* s : row) in_flight.push_back(s->in_flight);
  const auto middle = in_flight.begin() + static_cast<std::ptrdiff_t>(in_flight.size() / 2);
  std::nth_element(in_flight.begin(), middle, in_flight.end());
  job.in_flight = std::min(*middle, kMostInFlight);
  job.overhead = {std::max<std::int64_t>(0, job.step.value - known)};
}

}  // namespace

TraceJob import_kineto(const Paths& paths, const Paths& execution_traces, const OnRead& on_read) {
  std::vector<ExecutionSizes> sizes;
  for (const std::string& path : execution_traces) sizes.push_back(read_execution_trace(path, on_read));
  std::vector<bool> used(sizes.size(), false);
  std::vector<Rank> ranks;
  for (const std::string& path : paths) ranks.push_back(read_rank(path, sizes, used, on_read));
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      throw_error(ErrorCode::bad_file, "{}: is of process {}, of which there is no Kineto trace",
                  execution_traces[i], sizes[i].pid);
  std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.rank < b.rank; });
  for (std::size_t b = 1; b < ranks.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) check_of_two_ranks(ranks[a], ranks[b]);
    check_of_one_run(ranks[0], ranks[b]);
  }
  const Rank& first = ranks[0];
  const StepShape& shape = first.steps.shape;
  const int world = std::max(first.world, static_cast<int>(ranks.size()));
  if (shape.transfers.empty() && world > 1)
    throw_error(ErrorCode::bad_file,
                "{}: there is no communication in it: expected collectives (c10d::, gloo:, ncclDevKernel_) "
                "of {} ranks",
                first.path, world);
  TraceJob read{.kind = TraceKind::kineto};
  read.bucket_caps = first.steps.caps;
  read.notes = first.steps.notes;
  if (shape.transfers.empty()) read.notes.emplace_back("there is no communication in it: it is of one rank");
  if (static_cast<int>(ranks.size()) < world)
    read.notes.push_back(
        fmt::format("{} of {} ranks are here: waits for the others count as transfer", ranks.size(), world));
  if (first.world_of_groups)
    read.notes.push_back(
        fmt::format("no distributedInfo: it is of {} ranks, as the largest group of its collectives", world));
  StepRows steps = common_steps(ranks);
  leave_out_far_ones(steps, ranks, read.notes);
  read.steps = static_cast<int>(steps.size());
  read.job.name = name_of_file(first.path);
  read.job.ranks = world;
  add_times(read, steps, shape);
  add_exchanges(read, shape, steps);
  return checked(std::move(read), first.path);
}

}  // namespace talweg::train
