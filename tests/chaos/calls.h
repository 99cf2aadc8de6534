// What one rank passes to its session for a scripted call, as a group's public face would put it, and what
// became of it.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "chaos/scenario.h"
#include "protocol/plans.h"
#include "protocol/session/session.h"
#include "steer/plan_leader.h"

namespace talweg::chaos {

// So that few bytes, too, fill windows, and in an all-to-all wait for one another.
inline const protocol::PlanLimits kLittle{64, 64};

// One rank's part of one call.
struct Record {
  const ScriptedCall* script = nullptr;
  int rank = 0;             // of the group
  int group = 0;            // index in the scenario; -1: after everything had healed
  forest::Request request;  // as this rank asks for it
  protocol::Buffers buffers;
  std::vector<std::int32_t> before;  // the output as it was
  std::vector<std::int32_t> after;   // and as it was when the call ended
  bool started = false;
  bool done = false;
  bool lost = false;    // its rank died
  bool behind = false;  // others of its group were in flight there when it was called
  int times_done = 0;
  Picoseconds deadline = 0;
  std::size_t memory = 0;  // of chunk buffers, at most
  protocol::Outcome outcome;

  bool concerns_rank() const {
    return !script->message || rank == script->source || rank == script->destination;
  }
  bool in_place() const;
};

// Forests by call, shared by its ranks.
class Planning {
 public:
  std::shared_ptr<const protocol::Plan> plan(const ScriptedCall& call, const forest::Request& request,
                                             int rank, bool shared);

 private:
  std::map<std::uint64_t, std::shared_ptr<const forest::Forest>> forests_;
};

// What rank 0 plans for `request` first, and what is ready when it is asked again for the second time.
std::shared_ptr<const forest::Forest> led_forest(const forest::Request& request, bool first);
// Rank 0's planner, where it leads.
class Source : public steer::PlanSource {
 public:
  Plan first(const forest::Request& request) override { return {led_forest(request, true), false}; }
  Plan later(const forest::Request& request) override;
  void change_to(const std::vector<double>&, std::shared_ptr<const steer::PlannedAhead>) override {}

 private:
  std::unordered_map<forest::Request, int, steer::RequestHash> asked_;
};

// Fills in the record's buffers. For collectives.
protocol::Operation operation_of(Record& record, Planning& planning);
// For messages.
protocol::Message message_of(Record& record);
// Of a message of a group of `size`, for its session.
std::shared_ptr<const protocol::Plan> message_plan(int size, int rank, int source, int destination,
                                                   std::int64_t count, DataType type);

// The most that the chunk buffers of one run may take.
std::size_t most_memory(const protocol::Plan& plan);

}  // namespace talweg::chaos
