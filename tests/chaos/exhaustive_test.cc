// Every order in which a few frames can arrive, not only those that a seed draws: two or three sessions,
// small collectives, and a deadline or a death at any step.
//
// A rank's state depends on nothing but the events it has seen, in their order. So what has been explored is
// the set of all ranks' histories; a step that leads to a combination seen before is not taken again, and
// every reachable combination is visited once. Sessions cannot be copied: a state is reached by carrying out
// its events from the start.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <unordered_set>

#include "chaos/calls.h"

namespace talweg::chaos {
namespace {

struct Frame {
  wire::Header header;
  std::vector<std::byte> payload;
};

// Frames wait in order from each rank to each other one. A payload is copied when it is sent.
class Rank : public protocol::Outbox {
 public:
  Rank(int rank, int size) : to(static_cast<std::size_t>(size)) {
    std::vector<std::string> hosts;
    for (int r = 0; r < size; ++r) hosts.push_back("host" + std::to_string(r));
    session = std::make_unique<protocol::Session>(
        protocol::ranks_only(rank, hosts), 1, *this, pool,
        [size, rank](int source, int destination, std::int64_t count, DataType type) {
          return message_plan(size, rank, source, destination, count, type);
        });
  }
  bool send(int peer, const wire::Header& header, const std::byte* payload, const protocol::Token&, int,
            bool) override {
    to[static_cast<std::size_t>(peer)].push_back({header, {payload, payload + header.length}});
    return true;
  }
  void send_text(int peer, const wire::Header& header, const std::string& text) override {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    to[static_cast<std::size_t>(peer)].push_back({header, {bytes, bytes + text.size()}});
  }
  void cancel(std::uint64_t) override {}
  void look_at(std::int64_t) override { ADD_FAILURE() << "forests need no clock"; }
  void completed(void* user, const protocol::Outcome& outcome) override {
    auto& record = *static_cast<Record*>(user);
    ++record.times_done;
    record.done = true;
    record.outcome = outcome;
    record.after = record.buffers.out;
  }

  protocol::BufferPool pool;
  std::vector<std::deque<Frame>> to;
  std::unique_ptr<protocol::Session> session;
};

// What may happen besides frames arriving.
enum class Trouble { none, deadline, death };

struct Model {
  int ranks = 2;
  std::vector<ScriptedCall> calls;
  Trouble trouble = Trouble::none;
};

// One event: a rank starts its next call (peer == rank), hears the next frame of a peer, or meets trouble.
struct Event {
  int rank = 0;
  int peer = 0;
  bool trouble = false;
};

class Cluster {
 public:
  Cluster(const Model& model, Planning& planning) : model_(model), planning_(planning) {
    const auto n = static_cast<std::size_t>(model.ranks);
    started_.resize(n);
    dead_.resize(n);
    knows_.resize(n);
    history_.resize(n);
    for (int r = 0; r < model.ranks; ++r) ranks_.push_back(std::make_unique<Rank>(r, model.ranks));
    records_.resize(n);
    for (std::size_t r = 0; r < n; ++r)
      for (const ScriptedCall& call : model.calls) {
        records_[r].emplace_back();
        records_[r].back().script = &call;
        records_[r].back().rank = static_cast<int>(r);
      }
  }

  std::vector<Event> possible() const {
    std::vector<Event> events;
    for (int r = 0; r < model_.ranks; ++r) {
      const auto me = static_cast<std::size_t>(r);
      if (dead_[me]) continue;
      if (started_[me] < model_.calls.size()) events.push_back({r, r, false});
      for (int p = 0; p < model_.ranks; ++p)
        if (p != r && !ranks_[static_cast<std::size_t>(p)]->to[me].empty()) events.push_back({r, p, false});
      // The first rank has little time, or the last one dies: once; who is left sees the end of its stream
      // when all before it has been read.
      if (model_.trouble == Trouble::deadline && r == 0 && !late_ && started_[0] > 0)
        events.push_back({0, 0, true});
      const int last = model_.ranks - 1;
      if (model_.trouble != Trouble::death) continue;
      const bool gone = dead_[static_cast<std::size_t>(last)];
      if (r == last && !gone) events.push_back({r, r, true});
      if (gone && !knows_[me] && ranks_[static_cast<std::size_t>(last)]->to[me].empty())
        events.push_back({r, last, true});
    }
    return events;
  }

  void carry_out(const Event& e) {
    const auto me = static_cast<std::size_t>(e.rank);
    Rank& rank = *ranks_[me];
    history_[me].push_back(static_cast<char>(e.peer * 2 + (e.trouble ? 1 : 0)));
    if (e.trouble && model_.trouble == Trouble::deadline) {
      late_ = true;
      rank.session->on_time(1'000);
    } else if (e.trouble && e.peer == e.rank) {
      dead_[me] = true;
    } else if (e.trouble) {
      knows_[me] = true;
      rank.session->on_peer_gone(e.peer, ErrorCode::peer_failed, "it closed the connection");
    } else if (e.peer == e.rank) {
      start(e.rank);
    } else {
      auto& queue = ranks_[static_cast<std::size_t>(e.peer)]->to[me];
      const Frame frame = std::move(queue.front());
      queue.pop_front();
      rank.session->on_frame(e.peer, frame.header, frame.payload.data());
    }
  }

  std::string state() const {
    std::string text;
    for (const std::string& h : history_) text += h + '\xff';
    return text;
  }

  // Nothing more can happen. A message that its sender gave up before it was asked for leaves the receiver to
  // its own deadline; nothing else may need one.
  void check_end() {
    for (const auto& rank : ranks_)
      if (model_.calls[0].message) rank->session->on_time(1'000'000);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (dead_[r]) continue;
      for (std::size_t c = 0; c < model_.calls.size(); ++c) {
        const Record& record = records_[r][c];
        if (!record.concerns_rank()) continue;
        ASSERT_EQ(record.times_done, 1) << "rank " << r << " call " << c;
        EXPECT_EQ(record.after, record.buffers.out) << "written to after its end";
        if (record.outcome.ok) {
          EXPECT_EQ(record.after, record.buffers.expected) << "rank " << r;
          EXPECT_LT(record.script->odd, 0);
        } else {
          EXPECT_TRUE(model_.trouble != Trouble::none || record.script->odd >= 0) << record.outcome.text;
        }
        if (!record.outcome.ok && record.outcome.code == ErrorCode::mismatch) {
          EXPECT_EQ(record.after, record.before);
        }
      }
      EXPECT_EQ(ranks_[r]->pool.bytes_in_use(), 0U);
      EXPECT_EQ(ranks_[r]->session->in_flight(), 0U);
    }
  }

 private:
  void start(int r) {
    const auto me = static_cast<std::size_t>(r);
    Record& record = records_[me][started_[me]++];
    if (!record.concerns_rank()) return;
    record.started = true;
    const bool short_of_time = model_.trouble == Trouble::deadline && r == 0;
    const std::int64_t deadline = short_of_time ? 1'000 : 1'000'000;
    protocol::Session& session = *ranks_[me]->session;
    if (record.script->message) {
      protocol::Message message = message_of(record);
      message.deadline_ns = deadline;
      r == record.script->source ? session.send(message) : session.receive(message);
    } else {
      protocol::Operation operation = operation_of(record, planning_);
      operation.deadline_ns = deadline;
      session.start(std::move(operation));
    }
  }

  const Model& model_;
  Planning& planning_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::vector<Record>> records_;
  std::vector<std::size_t> started_;
  std::vector<bool> dead_;
  std::vector<bool> knows_;  // that the last one is dead
  bool late_ = false;
  std::vector<std::string> history_;
};

struct Explored {
  std::size_t states = 0;
  std::size_t ends = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMostStates = 3'000;  // of a model: slow, and looked through in full elsewhere
#else
constexpr std::size_t kMostStates = 1'000'000;
#endif

Explored explore(const Model& model) {
  Explored explored;
  Planning planning;
  std::unordered_set<std::string> seen;
  std::vector<Event> path;
  // What is left to try at each step of the path.
  std::vector<std::vector<Event>> left(1);
  {
    Cluster start(model, planning);
    left[0] = start.possible();
  }
  while (!left.empty() && explored.states < kMostStates) {
    if (left.back().empty()) {
      left.pop_back();
      if (!path.empty()) path.pop_back();
      continue;
    }
    path.push_back(left.back().back());
    left.back().pop_back();
    Cluster cluster(model, planning);
    for (const Event& e : path) cluster.carry_out(e);
    if (!seen.insert(cluster.state()).second) {
      path.pop_back();
      continue;
    }
    ++explored.states;
    left.push_back(cluster.possible());
    if (!left.back().empty()) continue;
    ++explored.ends;
    cluster.check_end();
    if (::testing::Test::HasFailure()) {
      for (const Event& e : path)
        fmt::print("rank {}, peer {}{}\n", e.rank, e.peer, e.trouble ? ", trouble" : "");
      return explored;
    }
  }
  return explored;
}

ScriptedCall collective(Collective op, const std::string& planner, int ranks, std::int64_t count,
                        std::uint64_t number = 0) {
  ScriptedCall c;
  c.number = number;
  c.call.request = {op, ranks, 0, 0, {count}, 4};
  c.call.planner = planner;
  c.call.chunk = 2;
  return c;
}

ScriptedCall message(int ranks, std::uint32_t tag, std::uint64_t number) {
  ScriptedCall c;
  c.number = number;
  c.message = true;
  c.source = 0;
  c.destination = ranks - 1;
  c.tag = tag;
  c.call.request = {Collective::send_recv, ranks, 0, ranks - 1, {3}, 4};
  return c;
}

void expect_all_orders_safe(const Model& model, std::size_t least_states) {
  const Explored e = explore(model);
  fmt::print("{} states, {} ends\n", e.states, e.ends);
  if (kMostStates < 1'000'000) return;
  EXPECT_GE(e.states, least_states) << "a search that meets so little has left something out";
  EXPECT_LT(e.states, kMostStates) << "too many to be looked through";
}

TEST(Exhaustive, TwoRanksReduceInChunksInEveryOrder) {
  expect_all_orders_safe({2, {collective(Collective::all_reduce, "chain", 2, 12)}, Trouble::none}, 50);
  expect_all_orders_safe({2, {collective(Collective::all_reduce, "ring", 2, 8)}, Trouble::none}, 50);
}

TEST(Exhaustive, TwoCollectivesInFlightMeetInEveryOrder) {
  for (const char* planner : {"one_hop", "chain", "recursive_doubling"})
    expect_all_orders_safe({2,
                            {collective(Collective::all_reduce, planner, 2, 2, 0),
                             collective(Collective::broadcast, "star", 2, 2, 1)},
                            Trouble::none},
                           50);
}

TEST(Exhaustive, ThreeRanksInEveryOrder) {
  for (const char* planner : {"chain", "star", "one_hop"})
    expect_all_orders_safe({3, {collective(Collective::all_reduce, planner, 3, 2)}, Trouble::none}, 100);
  expect_all_orders_safe({3, {collective(Collective::broadcast, "star", 3, 2)}, Trouble::none}, 100);
}

TEST(Exhaustive, MessagesFindTheirReceiversInEveryOrder) {
  expect_all_orders_safe({2, {message(2, 0, 0), message(2, 0, 1), message(2, 1, 2)}, Trouble::none}, 50);
}

TEST(Exhaustive, ADisagreementIsToldInEveryOrder) {
  for (const char* planner : {"chain", "one_hop"}) {
    Model model{2, {collective(Collective::all_reduce, planner, 2, 2)}, Trouble::none};
    model.calls[0].odd = 1;
    expect_all_orders_safe(model, 8);
  }
  // One-hop has 400 000 states here: all were looked through once, in half a minute of processor time.
  for (const char* planner : {"chain", "star"}) {
    Model model{3, {collective(Collective::all_reduce, planner, 3, 2)}, Trouble::none};
    model.calls[0].odd = 1;
    expect_all_orders_safe(model, 50);
  }
}

TEST(Exhaustive, ADeadlineThatPassesAtAnyStepLeavesNobodyWaiting) {
  for (const char* planner : {"chain", "one_hop"})
    expect_all_orders_safe({2,
                            {collective(Collective::all_reduce, planner, 2, 4, 0),
                             collective(Collective::all_reduce, planner, 2, 2, 1)},
                            Trouble::deadline},
                           100);
  expect_all_orders_safe({3, {collective(Collective::broadcast, "star", 3, 2)}, Trouble::deadline}, 100);
  expect_all_orders_safe({2, {message(2, 0, 0), message(2, 1, 1)}, Trouble::deadline}, 50);
}

TEST(Exhaustive, ADeathAtAnyStepLeavesNobodyWaiting) {
  for (const char* planner : {"chain", "one_hop"})
    expect_all_orders_safe({2, {collective(Collective::all_reduce, planner, 2, 4)}, Trouble::death}, 50);
  for (const char* planner : {"chain", "star"})
    expect_all_orders_safe({3, {collective(Collective::all_reduce, planner, 3, 2)}, Trouble::death}, 200);
  expect_all_orders_safe({2, {message(2, 0, 0)}, Trouble::death}, 20);
}

}  // namespace
}  // namespace talweg::chaos
