#include "study/by_bounded_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/fail.h"
#include "base/random.h"
#include "forest/choice.h"
#include "forest/packed.h"
#include "kernel/blocks.h"
#include "protocol/bounded/shape.h"
#include "steer/bounded_plan.h"
#include "study/field.h"
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
  how.p_sender = o.perf.may_lose_sender;
  how.p_call = o.perf.may_lose_call;
  how.type = type;
  how.costs = o.ranks.costs;
  how.classes.droppable = o.droppable;
  how.classes.must = o.keep_important;
  how.paths = o.paths;
  how.servers = o.perf.servers;
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

Prediction predict_bounded(const forest::Request& request, const forest::CostModel& model,
                           const std::vector<int>& servers, forest::PackingMemo& memo) {
  const auto predicted = [&](const forest::Forest& forest) {
    Prediction prediction;
    const forest::Offer offer = forest::offer(forest, model);
    // It is the words that tell that all have begun.
    prediction.seconds = std::isfinite(offer.seconds) ? model.seconds(forest, true) : offer.seconds;
    prediction.flows = offer.flows;
    prediction.breakdown = model.breakdown(forest, true);
    return prediction;
  };
  const steer::BoundedPlan plan = steer::plan_bounded(request, model, servers, memo);
  const Prediction words = predicted(plan.words), push = predicted(plan.push), pull = predicted(plan.pull);
  // What is said of the limit is of the half that takes longer.
  Prediction all = pull.breakdown.seconds() > push.breakdown.seconds() ? pull : push;
  all.flows = push.flows + pull.flows + words.flows;
  all.seconds = *push.seconds + *pull.seconds + *words.seconds;
  const forest::Breakdown longer = all.breakdown;
  all.breakdown.links = all.breakdown.processors = all.breakdown.latency = 0;
  all.breakdown.without -= longer.seconds();
  for (const forest::Breakdown& its : {words.breakdown, push.breakdown, pull.breakdown}) {
    all.breakdown.links += its.links;
    all.breakdown.processors += its.processors;
    all.breakdown.latency += its.latency;
    all.breakdown.without += its.seconds();
  }
  return all;
}

Prediction predict_bounded(const cluster::Cluster& network, const PerfCase& c,
                           const std::vector<int>& servers) {
  const forest::Request even = forest::even_request(c.op, c.ranks, 0, static_cast<std::int64_t>(c.count),
                                                    static_cast<std::int64_t>(size_of(c.type)));
  forest::PackingMemo memo;
  return predict_bounded(even, forest::CostModel(network), servers, memo);
}

std::optional<double> parse_limit(const char* flag, const std::string& text, double may_lose) {
  if (text.empty()) return std::nullopt;
  if (const std::string wrong = real_number_complaint(text, 0, may_lose); !wrong.empty())
    refuse("{}: {}: above --may-lose it would be no limit", flag, wrong);
  double limit = 0;
  std::from_chars(text.data(), text.data() + text.size(), limit);
  return limit;
}

std::vector<int> parse_servers(const std::string& text, int ranks) {
  std::vector<int> servers;
  std::size_t at = 0;
  while (!text.empty() && at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    int server = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, server);
    if (error != std::errc{} || rest != text.data() + end || server < 0)
      refuse("--servers {}: expected ranks with commas between them, such as 0,1", text);
    servers.push_back(server);
    at = end + 1;
  }
  const int known = ranks > 0 ? ranks : std::numeric_limits<int>::max();
  if (const std::string why = protocol::complaint_about_servers(servers, known); !why.empty())
    refuse("--servers {}: {}", text, why);
  return servers;
}

}  // namespace talweg::study
