#include "sim/collectives.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "kernel/reduce.h"
#include "talweg/error.h"

namespace talweg::sim {

namespace {

void add_nothing(void*, const void*, const void*, std::size_t) {}

}  // namespace

protocol::Operation operation_for(const std::shared_ptr<const forest::Forest>& forest, int rank,
                                  DataType type, ReduceOp reduction, const std::byte* in, std::byte* out,
                                  bool carry_payloads) {
  const forest::Request& q = forest->request;
  const std::int64_t total = std::accumulate(q.counts.begin(), q.counts.end(), std::int64_t{0});
  protocol::Operation op;
  op.plan = protocol::make_local_plan(forest, rank);
  op.signature = {q.op, type, reduction, q.root, total, 0};
  op.operands.in = in;
  op.operands.out = out;
  op.operands.type = type;
  op.operands.reduce = carry_payloads ? kernel::reduce_function(type, reduction) : add_nothing;
  op.all_contribute = (q.op == Collective::all_reduce && total > 0) || q.op == Collective::barrier;
  op.deadline_ns = std::numeric_limits<std::int64_t>::max();
  return op;
}

CallTimes run_calls(Simulation& simulation, Ranks& ranks, const std::shared_ptr<const forest::Forest>& forest,
                    DataType type, int warm_up, int calls, Picoseconds horizon) {
  const auto n = static_cast<std::size_t>(ranks.size());
  const std::int64_t size =
      std::accumulate(forest->request.counts.begin(), forest->request.counts.end(), std::int64_t{1}) *
      forest->request.element_size;
  // Never read or written but by address arithmetic and copies of zeros: all ranks share them.
  const auto in = std::make_unique<std::byte[]>(static_cast<std::size_t>(size));
  const auto out = std::make_unique<std::byte[]>(static_cast<std::size_t>(size));
  std::vector<protocol::Operation> operations;
  for (std::size_t r = 0; r < n; ++r)
    operations.push_back(
        operation_for(forest, static_cast<int>(r), type, ReduceOp::sum, in.get(), out.get(), false));

  CallTimes times;
  times.of_call.resize(static_cast<std::size_t>(calls));
  std::vector<int> done(n, 0);
  std::size_t left = n;
  ranks.on_end([&](const CollectiveResult& result) {
    const auto r = static_cast<std::size_t>(result.rank);
    if (!result.outcome.ok) throw Error(result.outcome.code, result.outcome.text);
    const Picoseconds took = result.ended - result.started;
    if (done[r] >= warm_up) {
      times.of_call[static_cast<std::size_t>(done[r] - warm_up)] += took / static_cast<Picoseconds>(n);
      times.total += took / static_cast<Picoseconds>(n);
    }
    if (++done[r] < warm_up + calls)
      ranks.start(result.rank, operations[r], simulation.now());
    else if (--left == 0)
      simulation.stop();
  });
  for (std::size_t r = 0; r < n; ++r) ranks.start(static_cast<int>(r), operations[r], simulation.now());
  simulation.run(horizon);
  ranks.on_end({});
  if (left == 0) return times;
  std::string missing;
  for (std::size_t r = 0; r < n; ++r)
    if (done[r] < warm_up + calls)
      missing +=
          fmt::format("{}{}", missing.empty() ? "" : ", ", simulation.network().cluster().nodes[r].name);
  throw Error(ErrorCode::timeout,
              fmt::format("{} of {} had not ended on {} at {}", name(forest->request.op), forest->planner,
                          missing, to_string(Nanoseconds{simulation.now() / 1000})));
}

}  // namespace talweg::sim
