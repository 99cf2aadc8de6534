// Group as seen from inside: turns calls into operations of a Session.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "group/world.h"
#include "observe/recorder.h"
#include "protocol/session/session.h"
#include "steer/adaptation.h"
#include "steer/plan_cache.h"
#include "steer/prober.h"
#include "talweg/group.h"

namespace talweg::group {

class GroupImpl : public Group, private protocol::Outbox {
 public:
  struct Identity {
    int rank = 0;
    std::vector<int> members;        // group rank -> rank in the world
    std::vector<std::string> hosts;  // group rank -> "name pid 123"
    std::vector<int> machines;       // group rank -> number of its host
    std::uint32_t id = 0;            // on the wire
  };
  GroupImpl(std::shared_ptr<World> world, Identity identity, cluster::Cluster network, std::string algorithm,
            std::chrono::milliseconds timeout, std::string description);
  ~GroupImpl() override;

  int rank() const override { return identity_.rank; }
  int size() const override { return static_cast<int>(identity_.members.size()); }

  WorkPtr start(const Call& call) override;

  std::shared_ptr<Group> split(std::span<const int> ranks) override;
  std::string probe(const ProbeOptions& options) override;
  // As probe(), with all that was found.
  steer::ProbeResult probe_in_full(const ProbeOptions& options);
  void abort(const std::string& why) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  GroupStatistics statistics() const override;
  std::string describe() const override;
  std::string explain(Collective op, std::size_t count, DataType type) const override;
  std::string host_of(int rank) const override;
  std::string flight_record() const override;

  // Lets plans follow the network from now on. To be called before the first collective, on every rank.
  void adapt();
  // For those who would share this group's connections: what it is called on all its ranks; whether all ranks
  // are still there and plan alike at any time, which they do not while plans follow the network; and a group
  // of those whose ranks here these are, known on the wire as `id`.
  std::uint64_t number() const;
  bool can_be_shared() const;
  std::shared_ptr<GroupImpl> part(std::span<const int> ranks, std::uint32_t id,
                                  std::chrono::milliseconds timeout);

  // For the World, under its lock.
  protocol::Session& session() { return session_; }
  live::Place place(int world_rank, const wire::Header& header);
  void on_frame(int world_rank, const wire::Header& header, const std::byte* payload);
  void on_peer_gone(int world_rank, std::optional<ErrorCode> failure, const std::string& why);
  // In group_observe.cc: what is written down about this group.
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const {
    return std::min({session_.next_deadline_ns(), next_stall_ns_, next_held_ns_});
  }
  std::string record(const std::string& reason) const;
  const Identity& identity() const { return identity_; }
  // lag[r]: for how many seconds a call in flight here has waited for rank r of the joined group to start it.
  void add_lag(std::vector<double>& lag, std::int64_t now_ns) const;

 private:
  // A collective that has been called and waits to begin.
  struct Start {
    forest::Request request;
    protocol::Operation operation;
    std::shared_ptr<WorkImpl> work;
    std::int64_t called_ns = 0;
  };
  // Throws Error for a call that can never work.
  Start prepare(const Call& call);
  // Under the lock: at once, or when the ranks have decided on their plans. Throws Error when there is no
  // plan.
  void enter(Start start);
  void begin(Start start);  // which has a plan
  // In group_adapt.cc.
  void end_epoch();
  void turn_epoch();
  void try_to_turn_epoch();
  void exchanged(bool ok, const std::string& why);
  void stop_following(const std::string& why);
  void begin_held();
  void begin_or_refuse(Start start);
  WorkPtr start_message(const Call& call);
  std::int64_t timeout_ns(const CallOptions& options) const;

  bool send(int to, const wire::Header& header, const std::byte* payload, const protocol::Token& token,
            int priority, bool stable) override;
  void send_text(int to, const wire::Header& header, const std::string& text) override;
  void cancel(std::uint64_t run) override;
  void completed(void* user, const protocol::Outcome& outcome) override;

  void note_start(WorkImpl& work, const observe::CallNote& note);
  // What is to be added to the text of an error.
  std::string note_end(WorkImpl& work, const protocol::Outcome& outcome);
  void note_missing();
  std::string write_record(const protocol::Outcome& outcome, std::int64_t now_ns);

  std::shared_ptr<World> world_;
  const Identity identity_;
  std::vector<int> group_rank_;  // of a world rank; -1: not a member
  const std::string algorithm_;
  const std::string description_;
  const Logger log_;
  mutable steer::PlanCache plans_;
  protocol::Session session_;
  std::atomic<std::int64_t> timeout_ns_;
  std::uint32_t splits_ = 0;
  observe::Recorder recorder_;
  std::int64_t next_stall_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t recorded_ns_ = 0;  // when the record was written last
  std::string recorded_;          // what was said about that
  bool leaving_ = false;

  // Where plans follow the network. The exchange runs in a group of its own, whose numbers are not the
  // user's; while a decision is due, collectives are held, and begin in their order after it.
  enum class Exchange { none, running, done };
  std::unique_ptr<steer::Adaptation> adaptation_;
  std::shared_ptr<GroupImpl> exchange_;
  GroupImpl* adapting_ = nullptr;  // of an exchange group: whose it is
  Exchange exchange_state_ = Exchange::none;
  bool follows_ = false;    // as long as nothing went wrong
  bool undecided_ = false;  // an epoch has ended before the ranks had exchanged the one before
  std::deque<Start> held_;
  std::int64_t next_held_ns_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace talweg::group
