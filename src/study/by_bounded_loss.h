// All-reduces of which a bounded part may be lost, as BoundedSums make them (talweg/bounded_loss.h):
// simulated with `--algo bounded`. It is no planner: only who asks for such sums gets them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/forest.h"
#include "forest/packed.h"
#include "sim/bounded_sums.h"
#include "study/perf_case.h"
#include "study/plan_study.h"
#include "study/simulate_request.h"

namespace talweg::study {

using sim::kBounded;

// Why there are no such calls where all else is as `options` say; empty: there are.
std::string why_not_bounded(const SimulateOptions& options);

// For options of which why_not_bounded() says nothing.
sim::BoundedSumsOptions bounded_sums_options(const SimulateOptions& options, DataType type);
// What each rank sums: stretches of small values and of large ones, as gradients have them.
std::vector<std::byte> uneven_vector(std::size_t count, DataType type, std::uint64_t seed);
// Where nothing is lost: what ranks say of the call, a push, and after it a pull, as a server (without
// `servers` each rank is one) gives its part when it has all of it.
Prediction predict_bounded(const forest::Request& request, const forest::CostModel& model,
                           const std::vector<int>& servers, forest::PackingMemo& memo);
Prediction predict_bounded(const cluster::Cluster& network, const PerfCase& c,
                           const std::vector<int>& servers = {});

// A limit beside --may-lose; no text: none. Throws Error{invalid_argument} that names the flag for what is no
// number from 0 to `may_lose`.
std::optional<double> parse_limit(const char* flag, const std::string& text, double may_lose);

// "0,3" of --servers: ranks; empty: all. Throws Error{invalid_argument} that names the flag, for `ranks` of
// them; 0: it is not known how many there are.
std::vector<int> parse_servers(const std::string& text, int ranks);

}  // namespace talweg::study
