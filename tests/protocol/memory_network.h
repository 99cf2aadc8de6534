// A whole group in one thread: sessions joined by queues whose delays and interleavings come from a seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/cluster.h"
#include "forest/block_turns.h"
#include "forest/planner.h"
#include "protocol/forest/local_plan.h"
#include "protocol/session/session.h"

namespace talweg::protocol {

struct Result {
  bool done = false;
  Outcome outcome;
};

// One rank: its session, and frames on their way from it to each other rank. A payload is read when the frame
// is *taken* (as a socket would), not when it is sent, so that overwriting a buffer too early shows up as
// wrong data.
class Node : public Outbox {
 public:
  struct Frame {
    wire::Header header;
    const std::byte* payload;
    std::vector<std::byte> copy;
    Token token;
    bool taken = false;
    bool report = false;
  };

  Node(int rank, int size, Random& random, bool eager_copies)
      : rank_(rank), random_(random), eager_copies_(eager_copies), to_(static_cast<std::size_t>(size)) {}

  bool send(int to, const wire::Header& header, const std::byte* payload, const Token& token, int priority,
            bool) override {
    // The other rank sends nothing until it has these: behind data that wait here they would hold it up.
    using wire::FrameType;
    for (const FrameType type :
         {FrameType::announce, FrameType::request, FrameType::clear, FrameType::credit})
      EXPECT_TRUE(header.type != type || priority == kUrgent);
    Frame f{header, payload, {}, token, false, token.data};
    const bool at_once = eager_copies_ && random_.below(2) == 0;
    if (at_once) take(f);
    f.report = f.report && !at_once;
    to_[static_cast<std::size_t>(to)].push_back(std::move(f));
    return at_once;
  }
  void send_text(int to, const wire::Header& header, const std::string& text) override {
    Frame f{header, nullptr, {}, {}, true, false};
    f.copy.resize(text.size());
    std::memcpy(f.copy.data(), text.data(), text.size());
    to_[static_cast<std::size_t>(to)].push_back(std::move(f));
  }
  void cancel(std::uint64_t run) override {
    for (auto& queue : to_)
      for (std::size_t i = 0; i < queue.size();) {
        Frame& f = queue[i];
        if (f.report && !f.taken && f.token.run == run) {
          const Token token = f.token;
          queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
          session->on_sent(token);
        } else {
          ++i;
        }
      }
  }
  void look_at(std::int64_t when_ns) override { look_ns_ = std::min(look_ns_, when_ns); }
  void completed(void* user, const Outcome& outcome) override {
    if (user == nullptr) {  // nobody said what to do in it
      EXPECT_FALSE(outcome.ok);
      return;
    }
    auto* result = static_cast<Result*>(user);
    EXPECT_FALSE(result->done) << "completed twice";
    *result = {true, outcome};
  }

  // The kernel takes one more frame for `to`; its payload is no longer needed here.
  void take_next(int to) {
    for (Frame& f : to_[static_cast<std::size_t>(to)]) {
      if (f.taken) continue;
      const bool report = f.report;
      const Token token = f.token;
      take(f);
      if (report) session->on_sent(token);
      return;
    }
  }

  int rank_;
  Random& random_;
  bool eager_copies_;
  std::vector<std::deque<Frame>> to_;
  std::int64_t look_ns_ = std::numeric_limits<std::int64_t>::max();
  BufferPool pool;
  std::unique_ptr<Session> session;

 private:
  static void take(Frame& f) {
    f.copy.assign(f.payload, f.payload + (f.payload == nullptr ? 0 : f.header.length));
    f.taken = true;
  }
};

class MemoryNetwork {
 public:
  // `helpers` nodes behind the ranks hold no data.
  MemoryNetwork(int size, std::uint64_t seed, int helpers = 0)
      : random_(seed), size_(size), all_(size + helpers) {
    Members members{0, size, {}};
    for (int r = 0; r < all_; ++r)
      members.names.push_back((r < size ? "rank " : "aggregator ") + std::to_string(r) + " (h" +
                              std::to_string(r) + ")");
    const bool eager_copies = random_.below(2) == 0;
    for (int r = 0; r < all_; ++r) {
      members.self = r;
      nodes_.push_back(std::make_unique<Node>(r, all_, random_, eager_copies));
      Node& node = *nodes_.back();
      node.session = std::make_unique<Session>(
          members, 1, node, node.pool,
          [this, r](int source, int destination, std::int64_t count, DataType type) {
            return plan(message_request(source, destination, size_, count, type), "direct", r, 64);
          });
    }
  }

  // A rank's part of the named planner's forest, with chunks small enough that there are several.
  std::shared_ptr<const LocalPlan> plan(const forest::Request& request, const std::string& planner, int rank,
                                        std::int64_t chunk) {
    // Ranks mostly ask the same, one after the other.
    if (!planned_ || planned_->request != request || planned_->planner != planner || chunk_ != chunk) {
      auto network = cluster::uniform_star(size_, Bandwidth{1e9}, Nanoseconds{10000});
      // Uneven, so that planners which look at rates make trees of many shapes.
      for (std::size_t link = 0; link < network.links.size(); ++link)
        network.links[link].capacity.bits_per_second *= static_cast<double>(1 + link * 3 % 5);
      auto forest = std::make_shared<forest::Forest>(forest::find_planner(planner).plan(request, network));
      if (!forest->sums_once)
        for (auto& tree : forest->trees) tree.chunk = chunk;
      planned_ = std::move(forest);
      lanes_ = forest::lanes_of(request, network);
      chunk_ = chunk;
    }
    // Small vectors wait for each other, too.
    return make_local_plan(planned_, rank, {.window_bytes = 64, .ahead_bytes = 64, .lanes = lanes_});
  }

  // One thing happens somewhere. False when nothing is left that could.
  bool step() {
    std::vector<std::pair<int, int>> busy;
    for (int a = 0; a < all_; ++a)
      for (int b = 0; b < all_; ++b)
        if (!nodes_[static_cast<std::size_t>(a)]->to_[static_cast<std::size_t>(b)].empty())
          busy.emplace_back(a, b);
    if (busy.empty()) return pass_time();
    const auto [a, b] = busy[random_.below(busy.size())];
    Node& from = *nodes_[static_cast<std::size_t>(a)];
    Node& to = *nodes_[static_cast<std::size_t>(b)];
    auto& queue = from.to_[static_cast<std::size_t>(b)];
    if (!queue.front().taken || random_.below(3) == 0) {
      from.take_next(b);
      return true;
    }
    Node::Frame frame = std::move(queue.front());
    queue.pop_front();
    const Session::Placement place = to.session->place(a, frame.header);
    if (place.data != nullptr && random_.below(2) == 0) {
      if (!frame.copy.empty()) std::memcpy(place.data, frame.copy.data(), frame.copy.size());
      to.session->on_frame(a, frame.header, place.data);
    } else {
      to.session->on_frame(a, frame.header, frame.copy.data());
    }
    return true;
  }
  void run() {
    while (step()) {
    }
  }
  std::int64_t now_ns() const { return now_ns_; }

  Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  Session& session(int rank) { return *node(rank).session; }
  Random& random() { return random_; }
  int size() const { return size_; }

 private:
  // Nothing is on its way: whoever wants to look at the clock next does. Not for ever.
  bool pass_time() {
    constexpr std::int64_t kLongest = 1'000'000;
    Node& next = **std::min_element(nodes_.begin(), nodes_.end(),
                                    [](const auto& a, const auto& b) { return a->look_ns_ < b->look_ns_; });
    if (next.look_ns_ > kLongest) return false;
    now_ns_ = std::max(now_ns_, std::exchange(next.look_ns_, std::numeric_limits<std::int64_t>::max()));
    next.session->on_time(now_ns_);
    return true;
  }

  Random random_;
  std::int64_t now_ns_ = 0;
  int size_;
  int all_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::shared_ptr<const forest::Forest> planned_;  // what was planned last
  forest::BlockLanes lanes_;                       // of that
  std::int64_t chunk_ = 0;
};

}  // namespace talweg::protocol
