// Group as seen from inside: turns calls into operations of a Session.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "forest/paces.h"
#include "group/switch_streams.h"
#include "group/world.h"
#include "observe/recorder.h"
#include "protocol/session/session.h"
#include "protocol/streaming/stream_run.h"
#include "steer/adaptation.h"
#include "steer/losses.h"
#include "steer/plan_cache.h"
#include "steer/plan_leader.h"
#include "steer/prober.h"
#include "steer/shared_plans.h"
#include "talweg/bounded_loss.h"
#include "talweg/group.h"

namespace talweg::group {

class RowsSwitch;

class GroupImpl : public Group, private Tenant, private protocol::Outbox {
 public:
  struct Identity {
    int rank = 0;
    std::vector<int> members;        // group rank -> rank in the world
    std::vector<std::string> hosts;  // group rank -> "name pid 123"
    std::vector<int> machines;       // group rank -> number of its host
    std::uint32_t id = 0;            // on the wire
    // What sums for the ranks and is none: node size() + i of the network.
    struct Helper {
      int seat = 0;  // in the world
      std::string name;
      std::string host;
      bool lost = false;  // before the group had formed
    };
    std::vector<Helper> helpers{};
  };
  GroupImpl(std::shared_ptr<World> world, Identity identity, const cluster::Cluster& network,
            std::string algorithm, std::chrono::milliseconds timeout, std::string description);
  ~GroupImpl() override;

  int rank() const override { return identity_.rank; }
  int size() const override { return static_cast<int>(identity_.members.size()); }

  WorkPtr start(const Call& call) override { return start(call, nullptr); }
  // By a plan that all ranks have, whoever has made it; null: by the group's own.
  WorkPtr start(const Call& call, std::shared_ptr<const protocol::Plan> plan);

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
  // Why nothing more is to be expected of this rank: the group has failed, or it has left.
  std::optional<Error> failure_of(int rank) const;
  // The shortest of late to each rank, as connections have measured it; 0: none has.
  std::vector<std::int64_t> least_round_trips_ns() const;
  std::string flight_record() const override;

  // Lets plans follow the network from now on. To be called before the first collective, on every rank.
  void adapt();
  // Has data leave at the paces that plans give them from now on: where the network is `described` by a file,
  // or once it has been measured. What is merely assumed of it sets no pace.
  void pace(bool described);
  // Has all_reduces go through a switch where that pays. To be called before the first collective, on every
  // rank.
  void use_switch(const SwitchWish& wish);
  // As `parent`, of which these are the ranks, from the first all_reduce on that it can sum.
  void use_switch_of(const GroupImpl& parent, std::span<const int> ranks);
  std::shared_ptr<const SwitchStreams> switches() const {  // null: there are none
    const auto guard = world_->lock();
    return switch_;
  }
  // The same, which none of this group's own calls go through from then on. Before the first collective that
  // could.
  std::shared_ptr<const SwitchStreams> give_switches() {
    const auto guard = world_->lock();
    return std::exchange(switch_, nullptr);
  }
  std::size_t switch_block() const {  // SwitchStreams::block(); 0 where there are none
    const auto guard = world_->lock();
    return switch_ ? switch_->block() : 0;
  }
  // Of bounded sums, in jobs of their own: counted, and let go of, as this group's are.
  void keep_bounded(std::shared_ptr<SwitchStreams> streams) {
    const auto guard = world_->lock();
    bounded_switch_ = std::move(streams);
  }
  // Sums of sparse tensors by its switches, from the first call on; null: it has none.
  RowsSwitch* rows_switch();
  // In a job of theirs: as keep_bounded().
  void keep_rows(std::shared_ptr<SwitchStreams> streams) {
    const auto guard = world_->lock();
    rows_streams_ = std::move(streams);
  }
  // For those who would share this group's connections: what it is called on all its ranks; whether all ranks
  // are still there, and plans are made for the same network throughout; and a group of those whose ranks
  // here these are, known on the wire as `id`.
  std::uint64_t number() const;
  bool can_be_shared() const;
  std::shared_ptr<GroupImpl> part(std::span<const int> ranks, std::uint32_t id,
                                  std::chrono::milliseconds timeout);
  void agree_on(std::span<const int> ranks, std::uint32_t id);
  // Who aborts this group aborts that one too, as long as it is there: it does a part of this one's work.
  void abort_too(const std::shared_ptr<GroupImpl>& other);

  const std::string& address() const { return world_->address(); }
  // By rank: the number of its host. Rank 0's is 0.
  const std::vector<int>& machines() const { return identity_.machines; }
  bool encrypts() const { return world_->encrypts(); }
  std::int64_t timeout_ns(const CallOptions& options) const;
  // By which calls are planned now. Any thread.
  std::shared_ptr<const forest::CostModel> model() const {
    const auto guard = world_->lock();
    return chooser_.model();
  }
  // In group_observe.cc. A sum of which a part may be lost is no operation of the session: who makes it says
  // when it begins, from whom something is missing on the way, and how it ends. One at a time.
  void begin_bounded(observe::CallNote::Kind kind, std::uint64_t number, const BoundedCall& call);
  void miss_bounded(std::vector<int> silent);
  // Of a pull: an empty report.
  void end_bounded(const LossReport& report, protocol::SumWay way = protocol::SumWay::none);
  // Returns what is to be added to the text of the error.
  std::string fail_bounded(const Error& error);

  // Under the World's lock.
  const protocol::Session& session() const { return session_; }

 private:
  // -1: not a member.
  int node_at(int seat) const {
    return static_cast<std::size_t>(seat) < nodes_.size() ? nodes_[static_cast<std::size_t>(seat)] : -1;
  }
  live::Place place(int seat, const wire::Header& header) override;
  void on_frame(int seat, const wire::Header& header, const std::byte* payload) override;
  void on_sent(std::uint32_t, const protocol::Token& token) override { session_.on_sent(token); }
  void on_peer_gone(int seat, std::optional<ErrorCode> failure, const std::string& why) override;
  // In group_observe.cc: what is written down about this group.
  std::int64_t on_time(std::int64_t now_ns) override;
  std::string record(const std::string& reason) const override;
  void add_lag(std::vector<double>& lag, std::int64_t now_ns) const override;
  void add_traffic(observe::SwitchTraffic& traffic) const override;

  // A collective that has been called and has no number yet.
  struct Start {
    Start(const Call& call, int rank, int size);
    forest::Request request;
    protocol::Operation operation;
    std::shared_ptr<WorkImpl> work;
    std::int64_t called_ns = 0;
  };
  // Throws Error for a call that can never work.
  Start prepare(const Call& call);
  // Under the lock, with what is in `start`. Throws Error when this rank plans for itself and there is no
  // plan.
  void enter(Start& start);
  // In group_plans.cc. The plan of a call; null where rank 0 has not said which.
  std::shared_ptr<const protocol::Plan> plan_for(std::uint64_t call, const forest::Request& request);
  std::shared_ptr<const protocol::Plan> find_plan(std::uint64_t call, const forest::Request& request);
  void say(const steer::PlanWord& word);
  void hear(int from, const wire::Header& header, const std::byte* payload);
  void take_up(const steer::PlanWord& word);
  void plan_held();  // as far as it is known what rank 0 says
  void note_word(const steer::PlanWord& word);
  // In group_paces.cc: how fast this rank sends, by seats of the world, in calls of one plan.
  struct CallPaces {
    std::vector<forest::Pace> paces;
    double seconds_needed = 0;
  };
  const CallPaces& paces_of(const protocol::Plan& plan);
  void begin_paced(WorkImpl& work, const protocol::Plan& plan);
  // In group_switch.cc: the plan by which a call may go through the switch; `trees` where it never does.
  std::shared_ptr<const protocol::Plan> with_switch(std::shared_ptr<const protocol::Plan> trees,
                                                    DataType type, ReduceOp reduction, int priority);
  std::function<void()> when_sums_change();
  bool switch_serves(const forest::Request& request, DataType type) const;
  // What the switch takes for the trees' vector (votes alone, where it serves always and was not measured);
  // none where the trees are taken. `least`: for one that is zero, where its form is chosen.
  std::optional<double> seconds_by_switch(const forest::Forest& trees, wire::AggregationFormat format,
                                          double votes_seconds, const forest::CostModel& model,
                                          bool least = false) const;
  protocol::SumPrices prices_of(const forest::Forest& trees, wire::AggregationFormat format,
                                const forest::CostModel& model) const;
  double find_votes_seconds(const forest::CostModel& model) const;
  // In group_helpers.cc: how a group goes on without an aggregator.
  void lose_helper(int node);
  void on_lost(int from, const wire::Lost& lost, const std::byte* payload);
  void agree_on_losses();
  WorkPtr start_message(const Call& call);

  bool send(int to, const wire::Header& header, const std::byte* payload, const protocol::Token& token,
            int priority, bool stable) override;
  void send_text(int to, const wire::Header& header, const std::string& text) override;
  void cancel(std::uint64_t run) override;
  void look_at(std::int64_t when_ns) override { world_->look_at(when_ns); }
  void completed(void* user, const protocol::Outcome& outcome) override;

  void note_start(Watched& call, const observe::CallNote& note);
  // What is to be added to the text of an error.
  std::string note_end(const Watched& call, const protocol::Outcome& outcome);
  void note_missing();
  // What is in flight and whom it waits for, by tickets.
  std::vector<std::pair<std::uint64_t, protocol::Session::Pending>> waiting() const;
  void warn_of_stalls(std::int64_t now_ns);
  std::string write_record(const protocol::Outcome& outcome, std::int64_t now_ns);

  std::shared_ptr<World> world_;
  const Identity identity_;
  const std::vector<int> seats_;  // of each node, in the world
  std::vector<int> nodes_;        // at each seat of the world; -1: not a member
  const std::string algorithm_;
  const std::string description_;
  const Logger log_;
  steer::PlanChooser chooser_;
  steer::PlanCache own_plans_;
  steer::SharedPlans shared_plans_;
  protocol::Session session_;
  std::atomic<std::int64_t> timeout_ns_;
  std::uint32_t splits_ = 0;
  std::vector<std::weak_ptr<GroupImpl>> aborted_too_;
  observe::Recorder recorder_;
  std::int64_t next_stall_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t recorded_ns_ = 0;  // when the record was written last
  std::string recorded_;          // what was said about that
  bool leaving_ = false;
  struct Bounded {
    Watched call;
    std::string what;  // "bounded_all_reduce(sum, f32, 1000 elements) #7 on rank 2 (...)"
    protocol::Session::Pending waits{};
  };
  std::optional<Bounded> bounded_;  // in flight

  // Calls that the session has and that wait for rank 0's word, by number.
  struct Held {
    std::uint64_t call = 0;
    forest::Request request;
    std::shared_ptr<WorkImpl> work;
    DataType type = DataType::u8;
    ReduceOp reduction = ReduceOp::sum;
    int priority = 0;
  };
  std::deque<Held> held_;
  steer::WordParts word_;  // of rank 0's, as far as it is here
  bool follows_ = false;   // plans follow the network
  steer::TrafficMeter meter_;
  std::unique_ptr<steer::Adaptation> adaptation_;  // on rank 0, where they do
  std::unique_ptr<steer::PlanLeader> leader_;      // on rank 0

  bool paced_ = false;
  bool described_ = false;  // the network: not merely assumed
  std::shared_ptr<const forest::CostModel> paced_for_;
  std::unordered_map<std::uint32_t, CallPaces> paces_;  // for that network, by the digest of a plan

  std::shared_ptr<SwitchStreams> switch_, bounded_switch_, rows_streams_;
  std::unique_ptr<RowsSwitch> rows_switch_;
  // Plans by which calls may go through it, by those of their trees, while what is known of it stays.
  using SwitchPlans = std::map<std::tuple<const protocol::Plan*, wire::AggregationFormat, bool>,
                               std::shared_ptr<const protocol::StreamPlan>>;
  SwitchPlans switch_plans_;
  std::uint64_t switch_lives_ = 0;
  std::shared_ptr<const forest::CostModel> switch_for_;
  double votes_seconds_ = 0;  // what agreeing on a sum takes, in that network

  steer::Losses losses_;                         // of aggregators
  std::vector<steer::Losses::Agreed> to_avoid_;  // rank 0: by the chooser
};

}  // namespace talweg::group
