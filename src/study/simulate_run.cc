#include "study/simulate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/settings.h"
#include "forest/planner.h"
#include "formats/import.h"
#include "group/switch_wish.h"
#include "protocol/aggregation/tolerance.h"
#include "sim/collectives.h"
#include "sim/frame_record.h"
#include "sim/sampler.h"
#include "steer/plan_chooser.h"
#include "study/by_bounded_loss.h"
#include "study/by_switch.h"
#include "study/plan_study.h"
#include "study/simulate_plan.h"
#include "study/simulate_transport.h"

namespace talweg::study {
namespace {

constexpr std::size_t kMostStepsKept = 500'000;  // of workloads, for the page
constexpr double kBoundPatience = 10;            // seconds that the bound may take

double microseconds(sim::Picoseconds time) {
  return static_cast<double>(time) * 1e-6;
}

// A simulation with everything that watches it.
class Watched {
 public:
  Watched(const SimulateOptions& options, Watchers& watchers, std::string title)
      : simulation(options.cluster, options.simulation), watchers_(watchers) {
    page_run.title = std::move(title);
    page_run.changes = options.changes;
    if (watchers.trace) watchers.trace->begin_run(watchers.traced);
    if (watchers.trace || watchers.page) sampler_ = std::make_unique<sim::Sampler>(simulation);
    if (watchers.trace) sampler_->on_sample([this] { trace_queues(); });
    if (watchers.progress != nullptr)
      watchers.progress->begin(simulation, page_run.title);
    else if (watchers.look)
      simulation.watch(watchers.look);
    sim::schedule(simulation, options.changes, watchers.trace.get());
  }
  void end(sim::RunReport& report) {
    report.add(sim::report_of(simulation));
    if (watchers_.page) watchers_.page->add(page_run, simulation, *sampler_);
    if (watchers_.progress != nullptr) watchers_.progress->end();
    watchers_.traced += simulation.now();
  }

  sim::Simulation simulation;
  PageRun page_run;  // filled in where there is a page

 private:
  // The queues that are not empty, and those that have become so.
  void trace_queues() {
    const cluster::Cluster& cluster = simulation.network().cluster();
    queued_.resize(cluster.links.size());
    for (std::size_t l = 0; l < queued_.size(); ++l) {
      const std::int64_t bytes = simulation.network().queued_bytes(static_cast<int>(l), simulation.now());
      if (bytes == queued_[l]) continue;
      queued_[l] = bytes;
      const cluster::Link& link = cluster.links[l];
      watchers_.trace->counter(link.from, "queue to " + cluster.nodes[static_cast<std::size_t>(link.to)].name,
                               simulation.now(), bytes);
    }
  }

  Watchers& watchers_;
  std::unique_ptr<sim::Sampler> sampler_;
  std::vector<std::int64_t> queued_;
};

std::int64_t bytes_to_move(const forest::Forest& forest) {
  std::int64_t elements = 0;
  for (const forest::Tree& tree : forest.trees)
    elements += tree.slice.count * static_cast<std::int64_t>(tree.up.size() + tree.down.size());
  return elements * forest.request.element_size;
}

double average_of(const std::vector<sim::Picoseconds>& ranks, Average average) {
  if (average == Average::rank0) return microseconds(ranks[0]);
  if (average == Average::min) return microseconds(*std::ranges::min_element(ranks));
  if (average == Average::max) return microseconds(*std::ranges::max_element(ranks));
  double sum = 0;
  for (const sim::Picoseconds t : ranks) sum += microseconds(t);
  return sum / static_cast<double>(ranks.size());
}

// As talweg perf: of what a call took each rank on average, and percentiles of calls without the first ones.
Timing timing_of(const sim::CallTimes& times, const PerfOptions& options) {
  std::vector<double> calls;
  std::vector<sim::Picoseconds> of_rank(times.of_rank[0].size());
  for (const auto& ranks : times.of_rank) {
    calls.push_back(average_of(ranks, options.average));
    for (std::size_t r = 0; r < ranks.size(); ++r) of_rank[r] += ranks[r];
  }
  Timing t;
  t.time_us = average_of(of_rank, options.average) / static_cast<double>(calls.size());
  calls.erase(calls.begin(), calls.begin() + std::min<std::ptrdiff_t>(options.skip, std::ssize(calls) - 1));
  std::ranges::sort(calls);
  const auto percentile = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(calls.size())));
    return calls[std::clamp<std::size_t>(rank, 1, calls.size()) - 1];
  };
  t.p50_us = percentile(0.5);
  t.p99_us = percentile(0.99);
  return t;
}

// Both may be null.
void watch_frames(sim::Ranks& ranks, sim::Trace* trace, sim::FrameRecord* record) {
  if (trace == nullptr && record == nullptr) return;
  ranks.on_frame([trace, record](const sim::FrameNote& f) {
    if (record != nullptr) record->add(f);
    if (trace != nullptr && f.header.length > 0)
      trace->transfer(f.from, f.to, fmt::format("tree {} chunk {}", f.header.tree, f.header.chunk),
                      f.header.length, f.sent, f.received);
  });
}

void simulate_matrix(const SimulateOptions& options, Watchers& watchers, SimulateResult& result) {
  Watched run(options, watchers, options.matrix);
  if (watchers.progress != nullptr) {
    std::int64_t bytes = 0;
    for (const sim::Connection& c : options.flows.connections) bytes += c.bytes;
    watchers.progress->expect(bytes);
  }
  result.flows = sim::run_matrix(run.simulation, options.flows, options.horizon, watchers.trace.get());
  if (watchers.page) describe_flows(run.page_run, options, result.flows);
  run.end(result.report);
}

void simulate_workload(const SimulateOptions& options, Watchers& watchers, SimulateResult& result) {
  Watched run(options, watchers, options.workload);
  if (watchers.progress != nullptr) {
    watchers.progress->plan("the collectives of " + options.workload);
    if (options.horizon != kDay) watchers.progress->expect_end(options.horizon);
  }
  sim::WorkloadOptions how;
  how.ranks = options.ranks;
  how.seed = options.simulation.seed;
  how.horizon = options.horizon;
  how.trace = watchers.trace.get();
  std::vector<sim::StepNote> steps;
  if (watchers.page)
    how.on_step = [&](const sim::StepNote& step) {
      if (steps.size() < kMostStepsKept) steps.push_back(step);
    };
  result.workload = sim::run_workload(run.simulation, options.job, how);
  if (watchers.page) describe_workload(run.page_run, options, result.workload, steps);
  run.end(result.report);
}

constexpr std::byte kSomething{0x3c};  // bytes of numbers of any type

// All ranks have one place for the sum, and one vector: what is in them is nobody's concern, but where zeros
// do not travel what is zero.
void simulate_switch(const SimulateOptions& options, const PerfCase& c, Watchers& watchers,
                     SimulateResult& result) {
  const auto bytes = static_cast<std::int64_t>(vector_bytes(c));
  Watched run(options, watchers,
              fmt::format("{} of {} by {}", name(c.op), to_string(Bytes{bytes}), kBySwitch));
  sim::SwitchSums sums(run.simulation, switch_sums_options(options, c.type));
  const PerfOptions& perf = options.perf;
  const double blocks = std::ceil(static_cast<double>(c.count) / sums.job().terms.block);
  const bool may_lose = options.switch_may_lose > 0;
  const int warmup = perf.warmup + (may_lose ? static_cast<int>(protocol::LingerTime::kWarmUp) : 0);
  if (watchers.progress != nullptr)
    watchers.progress->expect([&sums, all = blocks * (warmup + perf.iterations)] {
      return all > 0 ? static_cast<double>(sums.worker_counters(0).results) / all : 0;
    });
  const auto count = static_cast<std::int64_t>(c.count);
  const sim::SharedOperands memory(count, count, static_cast<std::int64_t>(size_of(c.type)));
  std::vector<sim::SumOperands> operands(static_cast<std::size_t>(c.ranks), {memory.in(), memory.out()});
  std::vector<std::vector<std::byte>> sparse;
  const bool looked_at = options.sparse.density < 1 || options.sparse.by_pairs();
  const bool alike = options.sparse.density >= 1 || options.sparse.overlap == Overlap::all;
  for (int rank = 0; looked_at && rank < c.ranks; ++rank) {
    if (rank == 0 || !alike) {
      sparse.emplace_back(vector_bytes(c), kSomething);
      clear_what_is_not_held(options.sparse, rank, c.ranks, sums.job().terms.block * size_of(c.type),
                             size_of(c.type), sparse.back());
    }
    operands[static_cast<std::size_t>(rank)].in = sparse.back().data();
  }
  const sim::CallTimes times = sums.run(operands, c.count, {warmup, perf.iterations, options.rest},
                                        options.horizon, watchers.trace.get());
  const Prediction prediction =
      predict_switch(forest::CostModel(options.cluster), bytes, c.type, sums.job(), options.sparse);
  PerfRow row{c, timing_of(times, perf), {}, {}, {}};
  row.in_place = row.out_of_place;  // the same packets
  row.plan = fmt::format("{}, predicted {:.4g} ms", forest::plan_title(kBySwitch, prediction.through),
                         *prediction.seconds * 1e3);
  if (watchers.page) describe_call(run.page_run, options, row, prediction, result.planned);
  run.end(result.report);
  for (int rank = 0; rank < c.ranks; ++rank) {  // a block is to a switch what a segment is to a flow
    const protocol::WorkerCounters sent = sums.worker_counters(rank);
    result.report.segments += sent.contributions + sent.adverts;
    result.report.retransmissions += sent.asked_for + sent.named;
    result.report.timeouts += sent.timeouts;
  }
  if (may_lose) row.lost = {sums.lost(), 0, true};
  result.rows.push_back(std::move(row));
  result.plans.push_back(prediction);
}

// The calls of which it is learnt how long they take, and which lose nothing, come before all others.
void simulate_bounded(const SimulateOptions& options, const PerfCase& c, Watchers& watchers,
                      SimulateResult& result) {
  const auto bytes = static_cast<std::int64_t>(vector_bytes(c));
  Watched run(options, watchers,
              fmt::format("{} of {} with bounded loss", name(c.op), to_string(Bytes{bytes})));
  sim::BoundedSums sums(run.simulation, bounded_sums_options(options, c.type));
  const PerfOptions& perf = options.perf;
  const int warmup = perf.warmup + static_cast<int>(protocol::AdaptiveDeadline::kWarmUp);
  if (watchers.progress != nullptr)
    watchers.progress->expect([&sums, all = static_cast<double>(warmup + perf.iterations)] {
      return static_cast<double>(sums.calls_ended()) / all;
    });
  const auto count = static_cast<std::int64_t>(c.count);
  const sim::SharedOperands memory(count, count, static_cast<std::int64_t>(size_of(c.type)));
  const std::vector<std::byte> uneven = options.droppable > 0
                                            ? uneven_vector(c.count, c.type, options.simulation.seed)
                                            : std::vector<std::byte>{};
  const std::vector<sim::SumOperands> operands(static_cast<std::size_t>(c.ranks),
                                               {uneven.empty() ? memory.in() : uneven.data(), memory.out()});
  const sim::CallTimes times = sums.run(operands, c.count, {warmup, perf.iterations, options.rest},
                                        options.horizon, watchers.trace.get());
  const Prediction prediction = predict_bounded(options.cluster, c, perf.servers);
  PerfRow row{c, timing_of(times, perf), {}, {}, {}};
  row.in_place = row.out_of_place;  // the same packets
  row.plan = fmt::format("{}, predicted {:.4g} ms", kBounded, *prediction.seconds * 1e3);
  if (watchers.page) describe_call(run.page_run, options, row, prediction, result.planned);
  run.end(result.report);
  const sim::BoundedLosses& losses = sums.losses();
  result.report.segments += losses.datagrams;
  result.report.retransmissions += losses.packets_again + losses.sums_again;
  result.report.timeouts += losses.timeouts;
  row.lost = {losses.lost(), losses.important()};
  result.rows.push_back(std::move(row));
  result.plans.push_back(prediction);
}

}  // namespace

void simulate_case(const SimulateOptions& options, const PerfCase& c, const std::string& algorithm,
                   Watchers& watchers, SimulateResult& result) {
  if (algorithm == kBySwitch) return simulate_switch(options, c, watchers, result);
  if (algorithm == kBounded) return simulate_bounded(options, c, watchers, result);
  const std::string size = to_string(Bytes{static_cast<std::int64_t>(vector_bytes(c))});
  if (watchers.progress != nullptr) watchers.progress->plan(fmt::format("{} of {}", name(c.op), size));
  const auto [forest, prediction] = plan_call(options.cluster, c, algorithm, result.planned);
  Watched run(options, watchers, fmt::format("{} of {} on {}", name(c.op), size, forest->planner));
  const PerfOptions& perf = options.perf;
  if (watchers.progress != nullptr)
    watchers.progress->expect(bytes_to_move(*forest) * (perf.warmup + perf.iterations));
  sim::Ranks ranks(run.simulation, options.ranks);
  sim::FrameRecord record;
  watch_frames(ranks, watchers.trace.get(), watchers.page ? &record : nullptr);
  const sim::CallTimes times =
      sim::run_calls(run.simulation, ranks, forest, c.type, {perf.warmup, perf.iterations, options.rest},
                     options.horizon, watchers.trace.get());
  PerfRow row{c, timing_of(times, perf), {}, {}, {}};
  if (has_in_place(c.op)) row.in_place = row.out_of_place;  // the same packets
  row.plan = fmt::format("{}, predicted {:.4g} ms", forest::plan_title(forest->planner, prediction.through),
                         *prediction.seconds * 1e3);
  if (watchers.page) {
    describe_call(run.page_run, options, row, prediction, result.planned);
    describe_ranks(run.page_run, options, ranks, record);
  }
  run.end(result.report);
  result.rows.push_back(std::move(row));
  result.plans.push_back(prediction);
}

SimulateResult simulate_all(const SimulateOptions& options, Watchers& watchers,
                            const std::function<void(const PerfRow&)>& on_row) {
  SimulateResult result;
  if (!options.matrix.empty()) {
    simulate_matrix(options, watchers, result);
    return result;
  }
  if (!options.workload.empty()) {
    simulate_workload(options, watchers, result);
    return result;
  }
  const PerfOptions& perf = options.perf;
  const int ranks = options.cluster.workers();
  result.planned = study_of_calls(options);
  std::function<void()> look = watchers.look;
  if (watchers.progress != nullptr) look = [&] { watchers.progress->look_for_bound(); };
  if (options.bound)
    result.planned.bound = bound_within(options.cluster, perf.op, result.planned.root, kBoundPatience, look);
  const forest::Request any = forest::even_request(perf.op, ranks, perf.root, 0, 1);
  for (const std::size_t size : perf.sizes)
    for (const std::string& algorithm : options.algorithms) {
      // "all": those that serve what is asked for.
      if (options.algorithms.size() > 1 && !serves(algorithm, any)) continue;
      const PerfCase c{perf.op,   perf.types[0], perf.reductions[0],
                       perf.root, ranks,         count_for(perf.op, size, perf.types[0], ranks)};
      simulate_case(options, c, algorithm, watchers, result);
      on_row(result.rows.back());
    }
  return result;
}

namespace {

// What a group would take: "" is the cheapest.
std::string algorithm_of_perf(SimulateOptions options) {
  const std::vector<DataType> types = options.perf.types;
  const auto check_types = [&](const std::string& what, auto&& why_not) {
    for (const DataType type : types) {
      options.perf.types = {type};
      if (const std::string why = why_not(options); !why.empty()) refuse("{}: {}", what, why);
    }
  };
  if (options.perf.may_lose) {
    check_types("--may-lose", why_not_bounded);
    return kBounded;
  }
  const group::NamedAlgorithms named = group::take_apart(resolve("TALWEG_ALGO").value);
  const steer::PlanChooser chooser(options.cluster, named.trees, nullptr);
  if (named.by_switch && options.perf.op == Collective::all_reduce) {
    check_types(fmt::format("TALWEG_ALGO: {}", kBySwitch), why_no_switch);
    return kBySwitch;
  }
  const forest::Request any =
      forest::even_request(options.perf.op, options.cluster.workers(), options.perf.root, 0, 1);
  const forest::Planner* const planner = chooser.named(any);
  return planner != nullptr ? planner->name : "";
}

}  // namespace

SimulateOptions options_of_perf(const PerfOptions& perf, const std::string& network) {
  SimulateOptions options;
  options.perf = perf;
  options.network = network;
  options.bound = false;  // the lines are those of measured calls
  options.cluster = formats::load_any(network);
  options.ranks.carry_payloads = false;
  options.ranks.costs = tcp_host_costs(options.cluster);
  options.ranks.pacing = switch_of("TALWEG_PACING");
  options.transport = transport_presets().front().name;
  apply(transport_presets().front(), options.simulation);
  options.simulation.transport.least_rto = options.simulation.transport.first_rto =
      Nanoseconds{200'000'000};  // Linux
  const int ranks = options.cluster.workers();
  if (perf.op == Collective::send_recv && ranks < 2)
    refuse("send_recv: {} has one worker, needs two", network);
  check_root(perf, ranks);
  options.may_lose = perf.may_lose.value_or(0);
  if (const std::string why = protocol::complaint_about_servers(perf.servers, ranks); !why.empty())
    refuse("--servers: {}", why);
  options.algorithms = {algorithm_of_perf(options)};
  return options;
}

}  // namespace talweg::study
