// PlanLeader: rank 0's part in sharing plans. It says what every other node waits to hear, and nothing else.
//
//   if (auto word = leader.lead(call, request)) send to all others (to_bytes(*word));
//   begin(*plans.find(call, request));      // rank 0 itself never waits
//
// A request's first call takes what can be planned at once. Where planning goes on, the others wait for
// another word at the first call after as many calls again as have gone by since: of a program that calls
// nothing else at the second, third, fifth, ninth, and so on. So they wait a few times for as long as a
// message takes, and a better plan serves before twice the time has passed that it took to make.
//
// Pure but for its source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "forest/cost.h"
#include "steer/shared_plans.h"

namespace talweg::steer {

// A network, and what PlanSource::first() has to say of it, before plans change to it.
struct PlannedAhead;

// Who makes the plans.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  struct Plan {
    std::shared_ptr<const forest::Forest> forest;
    bool final = true;  // no better one is being made
  };
  // What can be planned at once. Throws Error where nothing serves the request.
  virtual Plan first(const forest::Request& request) = 0;
  // Null forest: none that is better, so far or (final) ever.
  virtual Plan later(const forest::Request& request) = 0;
  // From now on links and groups carry so much, in bit/s. `ahead`: plans for that; may be null.
  virtual void change_to(const std::vector<double>& rates, std::shared_ptr<const PlannedAhead> ahead) = 0;
};

struct PlannedAhead {
  std::shared_ptr<const forest::CostModel> model;
  std::unordered_map<forest::Request, PlanSource::Plan, RequestHash> plans;
};

// Who watches the network, where plans follow it.
class NetworkWatch {
 public:
  virtual ~NetworkWatch() = default;
  struct Turn {
    std::vector<double> rates;  // plans are to be made for these from now on; empty: they stay
    std::shared_ptr<const PlannedAhead> ahead = nullptr;
    bool report = false;
    std::uint64_t next = 0;  // call
  };
  virtual Turn turn(std::uint64_t call) = 0;
};

class PlanLeader {
 public:
  // `watch` may be null, if `plans` has no turns. All outlive the leader.
  PlanLeader(SharedPlans& plans, PlanSource& source, NetworkWatch* watch)
      : plans_(plans), source_(source), watch_(watch) {}

  // Calls come in their order. What is returned `plans` has heard. Throws what the source throws; nothing has
  // been said then.
  std::optional<PlanWord> lead(std::uint64_t call, const forest::Request& request);

 private:
  SharedPlans& plans_;
  PlanSource& source_;
  NetworkWatch* watch_;
};

}  // namespace talweg::steer
