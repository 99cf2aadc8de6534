#include "sim/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/fail.h"
#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/look_ahead.h"
#include "kernel/reduce.h"
#include "sim/outage.h"

namespace talweg::sim {

namespace {

void add_nothing(void*, const void*, const void*, std::size_t) {}

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

// Whose workers the ranks are.
cluster::Cluster network_of(const Simulation& simulation, const Ranks& ranks) {
  std::vector<int> nodes;
  for (int r = 0; r < ranks.size(); ++r) nodes.push_back(ranks.node(r));
  return cluster::restrict_to(simulation.network().cluster(), nodes);
}

}  // namespace

SharedOperands::SharedOperands(std::int64_t in, std::int64_t out, std::int64_t element_size)
    : in_(zeros(in, element_size)), out_(zeros(out, element_size)) {}

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
  return forest::paces_of(forest, forest::CostModel(network_of(simulation, ranks)));
}

CallCount::CallCount(const Calls& calls, std::size_t ranks)
    : calls_(calls), done_(ranks), warming_(ranks), left_(ranks) {
  const auto timed = static_cast<std::size_t>(calls.timed);
  times_.of_call.resize(timed);
  times_.of_rank.assign(timed, std::vector<Picoseconds>(ranks));
}

CallCount::Next CallCount::ended(int rank, Picoseconds started, Picoseconds ended) {
  const auto r = static_cast<std::size_t>(rank);
  const auto ranks = static_cast<Picoseconds>(done_.size());
  const Picoseconds took = ended - started;
  if (done_[r] >= calls_.warm_up) {
    const auto call = static_cast<std::size_t>(done_[r] - calls_.warm_up);
    times_.of_call[call] += took / ranks;
    times_.of_rank[call][r] = took;
    times_.total += took / ranks;
  }
  ++done_[r];
  if (calls_.rest > 0 && done_[r] == calls_.warm_up) return --warming_ == 0 ? Next::all : Next::nothing;
  if (!over(rank)) return Next::its_own;
  --left_;
  return Next::nothing;
}

void throw_not_ended(const Simulation& simulation, const CallCount& count, std::span<const int> nodes,
                     const std::vector<int>& needed, const std::string& what, bool early,
                     Picoseconds horizon) {
  std::vector<std::string> missing;
  for (std::size_t r = 0; r < nodes.size(); ++r)
    if (!count.over(static_cast<int>(r)))
      missing.push_back(simulation.network().cluster().nodes[static_cast<std::size_t>(nodes[r])].name);
  throw_error(ErrorCode::timeout, "{}{} had not ended on {} at {}", outage_text(simulation, needed), what,
              abridged(missing), to_string(Nanoseconds{(early ? horizon : simulation.now()) / 1000}));
}

CallTimes run_calls(Simulation& simulation, Ranks& ranks, const std::shared_ptr<const forest::Forest>& forest,
                    DataType type, const Calls& calls, Picoseconds horizon, Trace* trace) {
  const auto n = static_cast<std::size_t>(ranks.size());
  const SharedOperands memory(*forest);
  const forest::LookAhead ahead = forest::look_ahead(forest->request, network_of(simulation, ranks));
  std::vector<protocol::Operation> operations;
  for (auto& plan : protocol::make_plans(forest, 0, ahead)) {
    const bool holds = plan->self < ranks.size();
    operations.push_back(operation_for(std::move(plan), type, ReduceOp::sum, holds ? memory.in() : nullptr,
                                       holds ? memory.out() : nullptr, false));
  }
  ranks.help([&](int node, const wire::Signature&) { return operations[static_cast<std::size_t>(node)]; });

  CallCount count(calls, n);
  const std::vector<forest::Pace> paces = paces_for(simulation, ranks, *forest);
  const auto start = [&](int r, Picoseconds when) {
    ranks.start(r, operations[static_cast<std::size_t>(r)], when, paces);
  };
  ranks.on_end([&](const CollectiveResult& result) {
    if (!result.outcome.ok) throw Error(result.outcome.code, result.outcome.text);
    if (trace != nullptr)
      trace->span(ranks.node(result.rank), name(forest->request.op), result.started, result.ended);
    switch (count.ended(result.rank, result.started, result.ended)) {
      case CallCount::Next::its_own:
        return start(result.rank, simulation.now());
      case CallCount::Next::all:
        for (int r = 0; r < ranks.size(); ++r) start(r, simulation.now() + count.rest());
        return;
      case CallCount::Next::nothing:
        if (count.over()) simulation.stop();
    }
  });
  for (int r = 0; r < ranks.size(); ++r) start(r, simulation.now());
  const bool early = !simulation.run(horizon);
  ranks.on_end({});
  if (count.over()) return count.take();
  std::vector<int> nodes, needed;
  for (int r = 0; r < ranks.size(); ++r) nodes.push_back(ranks.node(r));
  needed = nodes;
  for (const int node : forest::aggregators_of(*forest)) needed.push_back(ranks.node(node));
  throw_not_ended(simulation, count, nodes, needed,
                  fmt::format("{} of {}", name(forest->request.op), forest->planner), early, horizon);
}

}  // namespace talweg::sim
