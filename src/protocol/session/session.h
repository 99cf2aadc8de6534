// Session: one rank's view of a group.
//
// Numbers the collectives in the order in which they are started; checks that all ranks agree on each; opens
// and closes the flow between ranks that have started a collective and ranks that have not; matches
// point-to-point messages; turns failures anywhere into an outcome of every operation concerned, on every
// rank.
//
// Agreement. Every frame carries its sender's Signature. In a collective to which all contribute (all_reduce,
// barrier, reduce_scatter to all ranks) a root has heard from all before anything is written, so the data
// carry the agreement. In the others each rank announces itself to all and sends or writes nothing before it
// has heard from all. On top, ranks that disagree may have chosen forests without an edge between them: the
// plan says who else must be told (Plan::announce_to).
//
// A rank that has not started a collective keeps the first chunks that others send for it, if they are small
// (kEagerBytes) and few (kEagerBudget per sender, counted by the sender); larger ones wait for the
// announcement. A node that only helps announces nothing unless it is asked; it starts as soon as it knows
// the plan, and until it has been heard to know it, it is sent kUnheardBudget.
//
// Pure: events in, Outbox calls out, time only as an argument. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ring_queue.h"
#include "protocol/operation.h"
#include "protocol/outbox.h"
#include "protocol/session/mailbox.h"

namespace talweg::protocol {

// The rank that makes plans for all.
inline constexpr int kPlanner = 0;

inline constexpr std::size_t kEagerBudget = 1U << 20;

// What is sent to a node that only helps by plans of which it has not shown that it knows them: rank 0 tells
// it of them over a connection of its own, which may be the slower one.
inline constexpr std::size_t kUnheardBudget = 4 * kEagerBudget;

// What one sender may make us keep: its budget, and the headers of very many collectives that carry next to
// nothing.
inline constexpr std::size_t kEarlyLimit = 8 * kEagerBudget;

// Of operations that were served, so many are known to have ended: a frame that was overtaken by more is
// none.
inline constexpr std::size_t kRemembered = 1U << 16;

// Plans that a node which only helps is remembered to know; of more, it is asked again.
inline constexpr std::size_t kMostKnown = 1U << 12;

// Who takes part. Nodes 0 .. ranks-1 are the ranks; the others help: they hold no data, and start their part
// of an operation when they first hear of it.
struct Members {
  int self = 0;
  int ranks = 0;
  std::vector<std::string> names;  // of all nodes, as messages call them: "rank 3 (host pid 7)"
  std::size_t eager_budget = kEagerBudget;
};
Members ranks_only(int self, const std::vector<std::string>& hosts);

class Session {
 public:
  // Makes the forest of a message of `count` elements from `source` to `destination`.
  using MessagePlanner = std::function<std::shared_ptr<const Plan>(int source, int destination,
                                                                   std::int64_t count, DataType type)>;

  // `id` is the group's number on the wire.
  Session(Members members, std::uint32_t id, Outbox& outbox, BufferPool& pool, MessagePlanner plan_message);
  ~Session();

  // Start. Each returns the operation's number; the outcome comes through Outbox::completed, possibly at
  // once. An operation whose plan is null waits for plan(); rank 0, which makes the plans, is told that it
  // does, so that ranks that disagree hear of it.
  std::uint64_t start(Operation operation);
  std::uint64_t send(const Message& message);
  std::uint64_t receive(const Message& message);
  bool waits_for_plan(std::uint64_t id);
  // Whom those that wait for one are to blame, if not rank 0 alone.
  void plans_wait_for(std::vector<int> ranks) { planners_ = std::move(ranks); }
  void plan(std::uint64_t id, std::shared_ptr<const Plan> plan);
  // From this call on other plans hold than before. Nodes that only help are told when all calls before it
  // have ended here: then they need not know the plans of those.
  void renew_plans(std::uint64_t call);
  // Instead of start: there is no plan, and the operation fails on all ranks.
  std::uint64_t refuse(Operation operation, ErrorCode code, const std::string& reason);

  // For a node that is no rank: `server` says what to do in an operation that somebody else has begun, or
  // that this cannot be said yet; then its frames are kept, as far as one sender may have some kept, until
  // serve_early() asks again. It fails where rank 0 has left, who alone could have told the plan; such an
  // operation completes with no user.
  using Server = std::function<std::optional<Operation>(std::uint64_t sequence, const wire::Signature&)>;
  void serve(Server server);
  void serve_early();

  // Where the payload of this frame can be received straight into, and whose memory that is; data is null
  // when the frame wants to be handed over whole.
  struct Placement {
    std::byte* data = nullptr;
    std::uint64_t run = 0;
  };
  Placement place(int from, const wire::Header& header);
  void on_frame(int from, const wire::Header& header, const std::byte* payload);
  void on_sent(const Token& token);
  // The connection to `rank` is gone. Without `failure` it said goodbye first, so only what still waits for
  // it fails.
  void on_peer_gone(int rank, std::optional<ErrorCode> failure, const std::string& why);
  // A node that only helps is lost to all ranks: what needs it fails with this text, unless it was lost
  // before with another. And that text.
  void on_helper_lost(int node, ErrorCode code, const std::string& text);
  const Outcome& loss_of(int node) const { return lost_.at(node); }
  // Something that `rank` sent is damaged or makes no sense.
  void on_damaged(int rank, ErrorCode code, const std::string& why);
  // Tells transfers that have asked for it, asks who has started what is close to its deadline, and fails
  // what is past it.
  void on_time(std::int64_t now_ns);
  // For the latter two: what transfers wait for, the Outbox is told.
  std::int64_t next_deadline_ns() const;
  // What transfers wait for that comes neither in frames nor with time may have come: each that has begun is
  // told the time.
  void look_again(std::int64_t now_ns);
  // Fails everything, here and on all other ranks.
  void abort(const std::string& why);
  // Fails everything here only: this rank leaves.
  void close();
  // Tells `rank` so, which then fails what still waits for this one, once it has heard what is on its way.
  // Call it before close().
  void leave(int rank);

  std::size_t in_flight() const { return runs_.size(); }
  // No rank has gone.
  bool whole() const {
    return !broken_ && std::find(gone_.begin(), gone_.begin() + ranks_, true) == gone_.begin() + ranks_;
  }
  // Why all operations have failed, if they have.
  const std::optional<Outcome>& broken() const { return broken_; }
  bool has_gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  // What an operation in flight waits for: whoever watches a group asks, the operations themselves do not.
  struct Pending {
    void* user = nullptr;
    bool moving = false;      // it has begun: the ranks that matter here agree
    std::vector<int> absent;  // ranks that have not started it
    std::vector<int> silent;  // ranks that have, but whose data are missing
    std::string text;         // "all_reduce(...) #7 on rank 2 (...): rank 1 (...) has not started it"
  };
  std::vector<Pending> pending() const;  // in the order in which they were started
  std::uint64_t next_sequence() const { return next_; }
  // What frames take that are kept for collectives which have not begun here.
  std::size_t early_bytes() const;

 private:
  struct Run;
  struct Early {
    int from;
    wire::Header header;
    std::vector<std::byte> payload;
  };

  class Acting;
  // The frame that was placed last, and its run, which agrees with it.
  struct Found {
    Run* run = nullptr;
    int from = 0;
    wire::FrameType type = wire::FrameType::announce;
    std::uint64_t sequence = 0;
    std::uint32_t tree = 0, chunk = 0;
    bool operator==(const Found&) const = default;
  };

  int nodes() const { return static_cast<int>(names_.size()); }
  bool is_rank(int node) const { return node < ranks_; }
  // The node is a rank, or helps with this operation.
  bool concerns(const Run& run, int node) const;
  void prepare(Run& run);
  void start_at(std::uint64_t id, Operation& operation, const Outcome* refusal = nullptr);
  void engage(Run& run);
  void serve_call(std::uint64_t id, const wire::Signature& signature);
  void keep_early(int from, const wire::Header& header, const std::byte* payload);
  const Run* earliest_before(const Run& run) const;
  void lift_fences();
  bool has_ended(std::uint64_t id) const;
  void remember_end(std::uint64_t id);
  Run& add(std::uint64_t id);
  Run* find(std::uint64_t id);
  std::vector<Early> take_early(std::uint64_t id);
  wire::CallId call(const Run& run, int to) const;
  void post(int to, const wire::Header& header, int priority);
  void announce(const Run& run);
  bool calls_the_same(const Run& run, int from, const wire::Signature& theirs) const;
  bool agrees(const Run& run, int from, const wire::Header& header) const;
  void begin_if_agreed(Run& run);
  std::uint32_t initial_grant(const Run& run, int node, std::uint32_t bytes);
  std::uint32_t grant_of_helper(const Run& run, int node, std::size_t bytes);
  void saw_start(int from, const wire::Header& header);
  void saw_plan(int helper, const wire::Header& header);
  void tell_passed();
  void on_collective_frame(int from, const wire::Header& header, const std::byte* payload);
  void on_message_frame(int from, const wire::Header& header, const std::byte* payload);
  void on_failure_frame(int from, const wire::Header& header, const std::byte* payload);
  void on_group_frame(int from, const wire::Header& header, const std::byte* payload);
  // `agreed`: it is known to agree.
  void deliver(Run& run, int from, const wire::Header& header, const std::byte* payload, bool agreed = false);
  void accept(Run& run, const Envelope& envelope);
  // After each call of its transfer.
  void settle(Run& run);
  void tell_time(const std::vector<std::uint64_t>& runs, std::int64_t now_ns);
  void finish(std::uint64_t id, const Outcome& outcome);
  void fail_if_left(std::uint64_t id);
  void fail_those_that_need(int node, ErrorCode code, const std::string& text);
  Outcome without(int node) const;
  void mismatch(Run& run, int from, const wire::Signature& theirs);
  // Fails the run here and tells the ranks concerned.
  void fail(Run& run, ErrorCode code, const std::string& reason);
  void break_group(ErrorCode code, const std::string& text);
  void tell_group(ErrorCode code, const std::string& text, int except);
  std::string context(const Run& run) const;
  const std::string& who(int node) const { return names_[static_cast<std::size_t>(node)]; }
  void find_missing(const Run& run, std::vector<int>& absent, std::vector<int>& silent) const;
  std::string waiting_text(const Run& run) const;
  void ask_all(Run& run);
  std::string timeout_text(const Run& run) const;

  const int self_;
  const int ranks_;
  const std::vector<std::string> names_;
  const std::size_t eager_budget_;
  const std::uint32_t id_;
  Outbox& outbox_;
  BufferPool& pool_;
  const MessagePlanner plan_message_;

  std::uint64_t next_ = 0;  // sequence number of the next collective
  std::uint64_t next_message_ = 0;
  using Runs = std::unordered_map<std::uint64_t, std::unique_ptr<Run>>;
  Runs runs_;
  std::vector<Runs::node_type> spare_;  // entries of runs that have ended, for those to come
  std::vector<std::uint64_t> started_;  // per rank: it has started all collectives below this number
  struct Eager {
    std::uint64_t sequence;
    std::uint32_t bytes;
  };
  std::vector<RingQueue<Eager>> eager_;  // per rank: chunks sent ahead of its start
  std::vector<std::size_t> eager_bytes_;
  // By node that only helps, and plan: the bytes that it was sent, and of which it has shown nothing; and the
  // last call at which it has shown that it knows the plan.
  struct Helper {
    std::map<std::uint32_t, std::size_t> unheard;
    std::map<std::uint32_t, std::uint64_t> known;
  };
  bool knows_plan(const Helper& helper, std::uint32_t plan, std::uint64_t call) const;
  std::map<int, Helper> helpers_;
  std::deque<std::uint64_t> renewals_;         // of plans, that nobody has been told of
  std::multimap<std::uint64_t, Early> early_;  // frames of collectives that we have not started
  std::vector<std::size_t> early_bytes_;       // per sender
  std::map<std::uint64_t, Outcome> doomed_;    // collectives that failed elsewhere before we started them
  Mailbox mailbox_;
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> incoming_;  // (source, its number) -> run
  std::vector<int> planners_{kPlanner};
  std::vector<bool> gone_;
  bool anybody_gone_ = false;
  std::map<int, Outcome> lost_;  // why, of nodes that only help
  std::optional<Outcome> broken_;
  Found found_;
  std::uint64_t order_ = 0;
  std::size_t fences_ = 0;  // that wait for what was started before them
  Server serve_;
  std::set<std::uint64_t> ended_;  // where operations are served
  std::uint64_t ended_below_ = 0;
};

}  // namespace talweg::protocol
