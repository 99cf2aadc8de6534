#include "study/by_bounded_loss.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "kernel/blocks.h"
#include "talweg/error.h"

namespace talweg::study {

std::string why_not_bounded(const SimulateOptions& o) {
  if (o.perf.op != Collective::all_reduce) return fmt::format("it does all_reduce, not {}", name(o.perf.op));
  if (o.simulation.transport.kind == sim::TransportKind::fluid)
    return "its datagrams are packets, and --fluid has none";
  try {
    sim::check_bounded_sums(bounded_sums_options(o, o.perf.types[0]), o.simulation.transport);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

sim::BoundedSumsOptions bounded_sums_options(const SimulateOptions& o, DataType type) {
  sim::BoundedSumsOptions how;
  how.p = o.may_lose;
  how.type = type;
  how.costs = o.ranks.costs;
  how.classes.droppable = o.droppable;
  how.classes.must = o.keep_important;
  how.paths = o.paths;
  return how;
}

std::vector<std::byte> uneven_vector(std::size_t count, DataType type, std::uint64_t seed) {
  constexpr std::size_t kAlike = 1024;  // elements of about one size, such as a layer's
  Random random(seed, 1);
  std::vector<float> values(count);
  float scale = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % kAlike == 0) scale = static_cast<float>(std::exp(4 * random.uniform() - 2));
    values[i] = scale * static_cast<float>(2 * random.uniform() - 1);
  }
  std::vector<std::byte> vector(count * size_of(type));
  if (type == DataType::f32) {
    std::memcpy(vector.data(), values.data(), vector.size());
  } else if (type == DataType::f64) {
    const std::vector<double> wide(values.begin(), values.end());
    std::memcpy(vector.data(), wide.data(), vector.size());
  } else {
    kernel::narrow(type, vector.data(), values.data(), count);
  }
  return vector;
}

Prediction predict_bounded(const cluster::Cluster& network, const PerfCase& c) {
  const forest::Request even = forest::even_request(c.op, c.ranks, 0, static_cast<std::int64_t>(c.count),
                                                    static_cast<std::int64_t>(size_of(c.type)));
  const forest::CostModel model(network);
  forest::PackingMemo memo;
  const forest::Forest forest = forest::plan_by(planner_of(kBounded), even, model, memo);
  Prediction prediction;
  prediction.seconds = model.seconds(forest);
  prediction.breakdown = model.breakdown(forest);
  return prediction;
}

}  // namespace talweg::study
