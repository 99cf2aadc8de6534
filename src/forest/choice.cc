#include "forest/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/collectives.h"
#include "base/units.h"
#include "forest/algorithms.h"
#include "forest/packed.h"
#include "forest/packing_lp.h"

namespace talweg::forest {
namespace {

// Above, planners that send whole vectors to be done in few rounds may still be predicted to tie with others,
// but sum more on every rank: they stay what they are for.
constexpr std::int64_t kMostBytesInFewRounds = 256 << 10;

// Flows that share a port disturb each other, the more the longer they are: on eight hosts of 1 Gbit/s a ring
// of 1 MiB takes 0.92 of halving and doubling, which is predicted to take the same. Short ones end before
// that shows, and fewer rounds count for more.
constexpr std::int64_t kLongFlowBytes = 64 << 10;

bool has_long_flows(const Request& request) {
  std::int64_t elements = 0;
  for (const std::int64_t count : request.counts) elements += count;
  return elements * request.element_size / request.ranks >= kLongFlowBytes;
}

std::string why_not_tried(const Request& request) {
  if (request.ranks == 1) return "one rank has nothing to send";
  return fmt::format(
      "others come within {:.1f} % of what links allow, or {:.0f} % of what latencies and processors do",
      100 * (1 - kWorthOfLinks), 100 * (1 - kWorthOtherwise));
}

}  // namespace

bool serves(const Algorithm& algorithm, const Request& request) {
  return (algorithm.operations >> static_cast<unsigned>(request.op) & 1) != 0;
}

std::string why_not_meant(const Algorithm& algorithm, const Request& request) {
  const bool few_rounds = algorithm.plan == plan_one_hop || algorithm.plan == plan_recursive_doubling;
  if (!few_rounds || request.counts[0] * request.element_size <= kMostBytesInFewRounds) return {};
  return fmt::format("it is meant for up to {}: it sends whole vectors, to be done in few rounds",
                     to_string(Bytes{kMostBytesInFewRounds}));
}

std::string too_much_work(std::int64_t most_steps) {
  return fmt::format(
      "planning takes more than {} million steps (some {:g} s), or a gigabyte as for more than {} links{}",
      most_steps / 1'000'000, static_cast<double>(most_steps) * 1e-9, PackingLp::kMostRows,
      most_steps < kMostSteps ? "" : ": it is planned where it is named");
}

Offer offer(const Forest& forest, const CostModel& model) {
  const auto nodes = static_cast<std::size_t>(forest.nodes);
  std::vector<bool> sends(nodes * nodes);
  const auto note = [&](NodeId from, NodeId to) {
    sends[static_cast<std::size_t>(from) * nodes + static_cast<std::size_t>(to)] = true;
  };
  for (const Tree& tree : forest.trees) {
    if (tree.slice.count == 0) continue;
    for (const Edge& edge : tree.up) note(edge.child, edge.parent);
    for (const Edge& edge : tree.down) note(edge.parent, edge.child);
  }
  return {model.seconds(forest), static_cast<int>(std::ranges::count(sends, true))};
}

bool goes_before(const Offer& one, const Offer& other, const Request& request) {
  const bool flows_count = has_long_flows(request);
  return std::pair(one.seconds, flows_count ? one.flows : 0) <
         std::pair(other.seconds, flows_count ? other.flows : 0);
}

Choice choose(const Request& request, const CostModel& model,
              const std::function<Offer(const std::string& planner)>& offers) {
  using Reason = NotTaken::Reason;
  Choice choice;
  Offer best;
  for (const Algorithm& algorithm : algorithms::kAll) {
    if (!serves(algorithm, request)) continue;
    const auto pass_over = [&](Reason reason, std::string why) {
      choice.why_not.push_back({algorithm.name, reason, std::move(why)});
    };
    if (std::string why = why_not_meant(algorithm, request); !why.empty()) {
      pass_over(Reason::not_meant, std::move(why));
      continue;
    }
    if (facts(request.op).knows != Knows::all) {
      choice.taken = algorithm.name;
      break;
    }
    if (algorithm.plan == plan_packed && !packing_may_beat(best.seconds, request, model)) {
      pass_over(Reason::no_gain, why_not_tried(request));
      continue;
    }
    Offer offered = offers(algorithm.name);
    if (std::isinf(offered.seconds)) {
      if (offered.may_come) choice.missing.emplace_back(algorithm.name);
      pass_over(offered.may_come ? Reason::not_known : Reason::no_plan, std::move(offered.none_because));
    } else if (goes_before(offered, best, request)) {
      choice.taken = algorithm.name;
      best = std::move(offered);
    }
  }
  return choice;
}

}  // namespace talweg::forest
