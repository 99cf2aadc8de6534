#include "sim/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/fail.h"
#include "kernel/reduce.h"
#include "sim/outage.h"

namespace talweg::sim {

namespace {

void add_nothing(void*, const void*, const void*, std::size_t) {}

const std::string& node_name(const Simulation& simulation, const Ranks& ranks, int rank) {
  return simulation.network().cluster().nodes[static_cast<std::size_t>(ranks.node(rank))].name;
}

constexpr std::int64_t kMostOperandBytes = std::int64_t{1} << 40;  // days of simulation

std::byte* zeros(std::int64_t elements, std::int64_t element_size) {
  // Pages that nothing is written to cost nothing.
  void* const memory =
      elements < kMostOperandBytes / element_size
          ? std::calloc(static_cast<std::size_t>(elements + 1), static_cast<std::size_t>(element_size))
          : nullptr;
  if (memory == nullptr)
    refuse("{} bytes in one call: more than can be simulated here", elements * element_size);
  return static_cast<std::byte*>(memory);
}

}  // namespace

SharedOperands::SharedOperands(const forest::Forest& forest) {
  std::int64_t in = 0;
  std::int64_t out = 0;
  for (int r = 0; r < forest.request.ranks; ++r) {
    in = std::max(in, forest::input_count(forest.request, r));
    out = std::max(out, forest::output_count(forest.request, r));
  }
  in_.reset(zeros(in, forest.request.element_size));
  out_.reset(zeros(out, forest.request.element_size));
}

protocol::Operation operation_for(std::shared_ptr<const protocol::Plan> plan, DataType type,
                                  ReduceOp reduction, const std::byte* in, std::byte* out,
                                  bool carry_payloads) {
  const Call call{.op = plan->forest->request.op, .type = type, .reduction = reduction, .in = in, .out = out};
  protocol::Operation op = protocol::make_operation(call, plan->self, plan->forest->request);
  if (!carry_payloads) op.operands.reduce = add_nothing;
  op.deadline_ns = std::numeric_limits<std::int64_t>::max();
  op.plan = std::move(plan);
  return op;
}

std::vector<forest::Pace> paces_for(const Simulation& simulation, const Ranks& ranks,
                                    const forest::Forest& forest) {
  if (!ranks.pacing()) return {};
  std::vector<int> nodes;
  for (int r = 0; r < ranks.size(); ++r) nodes.push_back(ranks.node(r));
  return forest::paces_of(forest,
                          forest::CostModel(cluster::restrict_to(simulation.network().cluster(), nodes)));
}

CallTimes run_calls(Simulation& simulation, Ranks& ranks, const std::shared_ptr<const forest::Forest>& forest,
                    DataType type, const Calls& calls, Picoseconds horizon, Trace* trace) {
  const auto n = static_cast<std::size_t>(ranks.size());
  const SharedOperands memory(*forest);
  std::vector<protocol::Operation> operations;
  for (auto& plan : protocol::make_plans(forest)) {
    const bool holds = plan->self < ranks.size();
    operations.push_back(operation_for(std::move(plan), type, ReduceOp::sum, holds ? memory.in() : nullptr,
                                       holds ? memory.out() : nullptr, false));
  }
  ranks.help([&](int node, const wire::Signature&) { return operations[static_cast<std::size_t>(node)]; });

  CallTimes times;
  times.of_call.resize(static_cast<std::size_t>(calls.timed));
  times.of_rank.assign(static_cast<std::size_t>(calls.timed), std::vector<Picoseconds>(n));
  const int all = calls.warm_up + calls.timed;
  std::vector<int> done(n, 0);
  std::size_t left = n;
  std::size_t warming = n;
  const std::vector<forest::Pace> paces = paces_for(simulation, ranks, *forest);
  const auto start = [&](std::size_t r, Picoseconds when) {
    ranks.start(static_cast<int>(r), operations[r], when, paces);
  };
  ranks.on_end([&](const CollectiveResult& result) {
    const auto r = static_cast<std::size_t>(result.rank);
    if (!result.outcome.ok) throw Error(result.outcome.code, result.outcome.text);
    const Picoseconds took = result.ended - result.started;
    if (trace != nullptr)
      trace->span(ranks.node(result.rank), name(forest->request.op), result.started, result.ended);
    if (done[r] >= calls.warm_up) {
      const auto call = static_cast<std::size_t>(done[r] - calls.warm_up);
      times.of_call[call] += took / static_cast<Picoseconds>(n);
      times.of_rank[call][r] = took;
      times.total += took / static_cast<Picoseconds>(n);
    }
    ++done[r];
    if (calls.rest > 0 && done[r] == calls.warm_up) {
      if (--warming == 0)
        for (std::size_t other = 0; other < n; ++other) start(other, simulation.now() + calls.rest);
    } else if (done[r] < all) {
      start(r, simulation.now());
    } else if (--left == 0) {
      simulation.stop();
    }
  });
  for (std::size_t r = 0; r < n; ++r) start(r, simulation.now());
  const bool early = !simulation.run(horizon);
  ranks.on_end({});
  if (left == 0) return times;
  std::vector<int> needed;
  std::vector<std::string> missing;
  for (int r = 0; r < ranks.size(); ++r) {
    needed.push_back(ranks.node(r));
    if (done[static_cast<std::size_t>(r)] < all) missing.push_back(node_name(simulation, ranks, r));
  }
  for (const int node : forest::aggregators_of(*forest)) needed.push_back(ranks.node(node));
  throw_error(ErrorCode::timeout, "{}{} of {} had not ended on {} at {}", outage_text(simulation, needed),
              name(forest->request.op), forest->planner, abridged(missing),
              to_string(Nanoseconds{(early ? horizon : simulation.now()) / 1000}));
}

}  // namespace talweg::sim
