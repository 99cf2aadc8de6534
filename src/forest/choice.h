// Choice: which planner's forest carries a request, and why not another's. One rule answers for groups, for
// `talweg plan`, `info`, `convert` and `simulate`, for their pages and for Python: each asks with the
// predictions that it has.
//
//   const Choice choice = choose(request, model, [&](const std::string& name) { return offers.at(name); });
//   choice.taken;                                            // "packed"
//   for (const NotTaken& other : choice.why_not) other.why;  // in plain words
//
// The least predicted time wins. Planners are left out by the work that planning takes, never by the number
// of ranks; work is counted in steps, which are the same on every machine, and not read from a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::forest {

// What one planner may work for one forest, in steps of about a nanosecond: while a call waits, and else.
inline constexpr std::int64_t kMostStepsAtOnce = 20'000'000;  // 20 ms on a recent server
inline constexpr std::int64_t kMostSteps = 120'000'000'000;   // two minutes: fabrics of a thousand hosts
// "planning takes more than 20 million steps (some 0.02 s), or a gigabyte as for more than 10000 links", and
// what helps.
std::string too_much_work(std::int64_t most_steps);

// What choosing asks of a plan.
struct Offer {
  // Predicted; infinity: there is no plan.
  double seconds = std::numeric_limits<double>::infinity();
  int flows = 0;               // pairs of nodes of which the one sends to the other
  std::string none_because{};  // where there is no plan
  bool may_come = false;       // there is none yet: planning has not ended, or has not begun
};
Offer offer(const Forest& forest, const CostModel& model);
// Whether the choice takes `one` before `other`: the one that is quicker; of equals, where flows are long,
// the one with fewer, as flows disturb each other.
bool goes_before(const Offer& one, const Offer& other, const Request& request);

// A planner that serves the request and was passed over without an offer that lost.
struct NotTaken {
  enum class Reason {
    not_meant,  // for vectors of this size
    no_gain,    // too little is left to win to plan for: it may be predicted a little quicker
    no_plan,    // Offer::none_because
    not_known   // the same, and it may come
  };
  std::string planner;
  Reason reason = Reason::no_plan;
  std::string why;
};

struct Choice {
  std::string taken;                 // of those that have made an offer; empty: none has
  std::vector<NotTaken> why_not;     // in the order of planners()
  std::vector<std::string> missing;  // of those, who may come and might win
};

// `offers` is asked in the order of planners(), only of those that the choice is among. The request is valid,
// and for as many ranks as the network has workers. Where ranks may know different counts (see Request),
// predictions must not decide: the first planner that serves the request is taken, and none is asked.
Choice choose(const Request& request, const CostModel& model,
              const std::function<Offer(const std::string& planner)>& offers);

}  // namespace talweg::forest
