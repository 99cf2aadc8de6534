// SharedPlans: which forest carries which call of a group, as one node knows it from rank 0's words.
//
//   plans.hear(word);                        // in the order in which rank 0 has said them
//   if (auto plan = plans.find(call, request)) begin(plan);
//   else hold(call);                         // and those behind it, until the next word
//
// Why all nodes take the same forest at the same call: each keeps the same words, and knows for which calls
// it must wait for another one, since the words before have said so: for the first call of a request, for the
// first from `next` on (where a better plan may be ready by then), and at turns (where plans follow the
// network). What a rank calls itself changes nothing in that. So when ranks have called different things,
// which is an error on all of them, they still agree on what follows.
//
// Pure: no clock, no thread, no network.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "forest/forest.h"
#include "protocol/plans.h"
#include "steer/plan_word.h"

namespace talweg::steer {

using SharedPlan = std::shared_ptr<const protocol::Plan>;  // this node's part of a forest

// Whether every rank knows all that is asked for, and rank 0 plans for all.
bool is_shared(const forest::Request& request);

struct RequestHash {
  std::size_t operator()(const forest::Request& request) const;
};

class SharedPlans {
 public:
  // Requests that rank 0 keeps plans for; when there are more it forgets all, which costs planning time but
  // never memory.
  static constexpr std::size_t kMostRequests = 512;

  // `nodes`: of the group, its ranks and others.
  SharedPlans(forest::NodeId self, int ranks, int nodes)
      : self_(self), ranks_(ranks), nodes_(nodes), passed_(static_cast<std::size_t>(ranks), 0) {}
  SharedPlans(SharedPlans&&) = default;  // no copies: `last_` points into the map
  // Before the first call: plans follow the network, and the first turn is at call 0.
  void expect_turns() { turns_ = true; }

  // Throws Error{corrupted}, and keeps nothing, for words that contradict those before and for forests that
  // do not compute what they are for among the nodes of this group: nothing that rank 0 says is trusted.
  void hear(const PlanWord& word);
  // All ranks know for themselves that from this call on plans are to be made anew.
  void forget(std::uint64_t call, std::vector<double> rates = {});
  // Calls are asked for in their order, and one may be asked for again. Null: rank 0 has not said yet.
  SharedPlan find(std::uint64_t call, const forest::Request& request);
  // Once: the rates that plans of that call are made for, where they have changed; else none.
  std::vector<double> take_rates() { return std::exchange(rates_, {}); }

  // Of a node that is no rank, which makes no calls: the plan with this digest, for its part of that call.
  // Null: rank 0 has not told of it yet.
  SharedPlan find(std::uint64_t call, std::uint32_t digest);
  // To that node: all calls before this one have ended on that rank. When they have on all ranks, the plans
  // are dropped that were to be forgotten at that call and have served no later one.
  void passed(int rank, std::uint64_t call);

  // For rank 0, before it says its word: what is due at this call.
  bool turn_is_due(std::uint64_t call) const;
  bool full() const { return plans_.size() >= kMostRequests; }
  struct Due {
    bool first = false;                      // no plan is known
    bool again = false;                      // a better one may be
    std::uint64_t since = 0;                 // the call that the request's first word was for
    const forest::Forest* forest = nullptr;  // that serves
  };
  Due due(std::uint64_t call, const forest::Request& request);

 private:
  // The words about one request, the oldest first.
  struct Told {
    std::uint64_t from = 0;
    std::uint64_t next = kNever;
    SharedPlan plan;
  };
  struct Shape {
    std::uint64_t since = 0;
    std::vector<Told> told;
  };
  struct Turn {
    std::uint64_t from = 0;
    std::uint64_t next = 0;
  };
  struct Forget {
    std::uint64_t from = 0;
    std::vector<double> rates;
  };
  void pass(std::uint64_t call);
  const Told* told_before(const PlanWord& word) const;
  Shape* shape_of(const forest::Request& request);
  static const Told* told_for(std::uint64_t call, Shape* shape);
  SharedPlan make(const PlanWord& word) const;

  const forest::NodeId self_;
  const int ranks_;
  const int nodes_;
  bool turns_ = false;
  std::uint64_t next_word_ = 0;  // the first call that another word may be for
  std::unordered_map<forest::Request, Shape, RequestHash> plans_;
  std::pair<const forest::Request, Shape>* last_ =
      nullptr;                  // of plans_, asked for last: most often also next
  std::deque<Forget> forgets_;  // at calls that are still to come
  std::vector<double> rates_;
  std::deque<Turn> turn_words_;
  // Of a node that is no rank: by digest, with the last call that it was told for or has served.
  struct Kept {
    SharedPlan plan;
    std::uint64_t last = 0;
  };
  std::unordered_map<std::uint32_t, Kept> kept_;
  std::vector<std::uint64_t> passed_;  // by rank
};

}  // namespace talweg::steer
