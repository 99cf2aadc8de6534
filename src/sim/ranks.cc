#include "sim/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/fail.h"
#include "forest/planner.h"
#include "protocol/pacer.h"
#include "protocol/plans.h"
#include "protocol/send_queue.h"

namespace talweg::sim {

namespace {

struct Frame {
  wire::Header header;
  const std::byte* payload = nullptr;
  std::string text;  // owned payload of a control frame
  protocol::Token token;
  int priority = 0;
  bool reported = true;  // nobody waits for on_sent

  std::int64_t bytes() const { return static_cast<std::int64_t>(sizeof(wire::Header)) + header.length; }
};

// A frame that is in the stream: what arrives when its last byte does.
struct Travelling {
  wire::Header header;
  std::byte* copy = nullptr;
  std::int64_t end = 0;  // of it, in the stream
  Picoseconds sent = 0;
};

}  // namespace

// From one rank to another.
struct Ranks::Channel {
  int from = 0;
  int to = 0;
  FlowId flow = 0;
  protocol::SendQueue<Frame> waiting;
  RingQueue<Frame> taken;  // by the processor, to be written
  RingQueue<Travelling> stream;
  std::int64_t written = 0;
  std::int64_t arrived = 0;
  bool send_queued = false;  // as work of the sender's processor, and of the receiver's
  bool receive_queued = false;
};

class Ranks::Host : public protocol::Outbox {
 public:
  Host(Ranks& ranks, const protocol::Members& members)
      : ranks_(ranks),
        rank_(members.self),
        session(members, ranks.options_.group, *this, pool_,
                [this](int source, int destination, std::int64_t count, DataType type) {
                  const forest::Request q =
                      protocol::message_request(source, destination, ranks_.size(), count, type);
                  auto forest = std::make_shared<forest::Forest>(forest::plan_best(
                      q, cluster::restrict_to(
                             ranks_.simulation_.network().cluster(),
                             std::span(ranks_.nodes_).first(static_cast<std::size_t>(ranks_.size_)))));
                  return protocol::make_plan(std::move(forest), rank_);
                }) {}

  bool send(int to, const wire::Header& header, const std::byte* payload, const protocol::Token& token,
            int priority, bool) override {
    push(to, {header, payload, {}, token, priority, !token.data});
    return false;
  }
  void send_text(int to, const wire::Header& header, const std::string& text) override {
    push(to, {header, nullptr, text, {}, protocol::kUrgent, true});
  }
  void cancel(std::uint64_t run) override {
    for (auto& [to, c] : ranks_.channels_[static_cast<std::size_t>(rank_)]) {
      c->waiting.cancel(ranks_.options_.group, run,
                        [&](const Frame& frame) { session.on_sent(frame.token); });
      for (std::size_t left = c->taken.size(); left-- > 0;) {
        Frame frame = c->taken.pop();
        if (!frame.reported && frame.token.run == run)
          session.on_sent(frame.token);
        else
          c->taken.push(std::move(frame));
      }
    }
  }
  // Of the moments that are asked for only the next is waited for: the session names the others again.
  void look_at(std::int64_t when_ns) override {
    const Picoseconds when = std::max(when_ns * kPicosecondsPerNanosecond, ranks_.simulation_.now());
    if (when >= look_) return;
    look_ = when;
    ranks_.simulation_.at(when, [this, when] {
      if (when != look_) return;
      look_ = kNever;
      session.on_time(when / kPicosecondsPerNanosecond);
    });
  }
  void completed(void* user, const protocol::Outcome& outcome) override {
    auto* result = static_cast<CollectiveResult*>(user);
    if (result == nullptr) return;  // of an aggregator
    result->ended = ranks_.simulation_.now();
    result->outcome = outcome;
    if (result->paced) pacer_.end(0, ranks_.simulation_.now() / kPicosecondsPerNanosecond);
    if (ranks_.on_end_) ranks_.on_end_(*result);
  }

  // The network is what plans are made for: no call shows that it carries more.
  void begin_paced(std::span<const forest::Pace> paces) {
    pacer_.begin(paces, ranks_.simulation_.now() / kPicosecondsPerNanosecond);
  }

  void want_send(Channel& c) {
    if (c.send_queued || c.waiting.empty()) return;
    const std::int64_t buffer = unsent_limit(c);
    if (ranks_.simulation_.transport().unsent_bytes(c.flow) >= buffer) {
      ranks_.simulation_.transport().notify_below(c.flow, buffer);
      return;
    }
    c.send_queued = true;
    add_work(c, false);
  }
  void want_receive(Channel& c) {
    if (c.receive_queued || c.stream.empty() || c.stream.front().end > c.arrived) return;
    c.receive_queued = true;
    add_work(c, true);
  }

 private:
  struct Work {
    Channel* channel = nullptr;
    bool receive = false;
  };

  std::int64_t unsent_limit(const Channel& c) const {
    const Transport& transport = ranks_.simulation_.transport();
    const std::int64_t limit = protocol::unsent_limit(
        transport.window_bytes(c.flow), transport.round_trip(c.flow) / kPicosecondsPerNanosecond);
    const double pace = transport.pace_of(c.flow);
    return pace > 0 ? std::min(limit, protocol::paced_limit(pace)) : limit;
  }

  void push(int to, Frame frame) {
    Channel& c = ranks_.channel(rank_, to);
    c.waiting.push(std::move(frame));
    want_send(c);
  }

  // The session may be in the middle of a call: what it asks for begins when that has returned.
  void add_work(Channel& c, bool receive) {
    work_.push({&c, receive});
    if (working_) return;
    working_ = true;
    ranks_.simulation_.at(ranks_.simulation_.now(), [this] { begin(); });
  }

  void begin() {
    if (work_.empty()) {
      working_ = false;
      return;
    }
    at_hand_ = work_.pop();
    if (at_hand_.receive)
      frames_ = ready(*at_hand_.channel);
    else
      batch(*at_hand_.channel);
    ranks_.simulation_.at(ranks_.cores_.finish(ranks_.simulation_.now(), cost_), [this] {
      if (at_hand_.receive)
        receive(*at_hand_.channel, frames_);
      else
        write(*at_hand_.channel);
      begin();
    });
  }

  // Takes the frames that the next piece of work is about; leaves in cost_ what it takes.
  void batch(Channel& c) {
    const std::int64_t room = unsent_limit(c) - ranks_.simulation_.transport().unsent_bytes(c.flow);
    std::int64_t bytes = 0;
    while (bytes < room && !c.waiting.empty()) {
      c.taken.push(c.waiting.pop());
      bytes += c.taken[c.taken.size() - 1].bytes();
    }
    cost_ = ranks_.options_.costs.of(1, bytes, 0);
  }
  // How many frames have arrived; leaves in cost_ what it takes to receive them.
  std::size_t ready(Channel& c) {
    std::size_t frames = 0;
    std::int64_t bytes = 0;
    std::int64_t reduced = 0;
    for (; frames < c.stream.size() && c.stream[frames].end <= c.arrived; ++frames) {
      const wire::Header& h = c.stream[frames].header;
      const std::int64_t size = static_cast<std::int64_t>(sizeof h) + h.length;
      bytes += size;
      if (h.type == wire::FrameType::up) reduced += size;
    }
    cost_ = ranks_.options_.costs.of(1, bytes, reduced);
    return frames;
  }

  void write(Channel& c) {
    std::int64_t bytes = 0;
    while (!c.taken.empty()) {
      const Frame frame = c.taken.pop();
      Travelling& t = travel(c, frame);
      bytes += frame.bytes();
      t.end = c.written + bytes;
      if (!frame.reported) session.on_sent(frame.token);
    }
    c.written += bytes;
    Transport& transport = ranks_.simulation_.transport();
    if (!c.stream.empty()) transport.notify_at(c.flow, c.stream.front().end);
    transport.write(c.flow, bytes, ranks_.simulation_.now());
    c.send_queued = false;
    want_send(c);
  }
  Travelling& travel(Channel& c, const Frame& frame) {
    Travelling t;
    t.header = frame.header;
    t.sent = ranks_.simulation_.now();
    const std::byte* payload =
        frame.text.empty() ? frame.payload : reinterpret_cast<const std::byte*>(frame.text.data());
    if (frame.header.length > 0 && (ranks_.options_.carry_payloads || !frame.text.empty())) {
      t.copy = ranks_.copies_.acquire(frame.header.length);
      std::memcpy(t.copy, payload, frame.header.length);
    }
    c.stream.push(t);
    return c.stream[c.stream.size() - 1];
  }

  void receive(Channel& c, std::size_t frames) {
    c.receive_queued = false;
    for (; frames > 0; --frames) {
      const Travelling t = c.stream.pop();
      const protocol::Session::Placement place = session.place(c.from, t.header);
      const std::byte* payload = t.copy;
      if (place.data != nullptr) {
        if (t.copy != nullptr) std::memcpy(place.data, t.copy, t.header.length);
        payload = place.data;
      } else if (t.copy == nullptr) {
        payload = ranks_.nothing_.data();
      }
      session.on_frame(c.from, t.header, payload);
      if (t.copy != nullptr) ranks_.copies_.release(t.copy, t.header.length);
      if (ranks_.on_frame_)
        ranks_.on_frame_(
            {ranks_.node(c.from), ranks_.node(c.to), t.header, t.sent, ranks_.simulation_.now()});
    }
    // What has arrived in the meantime was not announced.
    c.arrived = ranks_.simulation_.transport().delivered_bytes(c.flow);
    want_receive(c);
    if (!c.stream.empty()) ranks_.simulation_.transport().notify_at(c.flow, c.stream.front().end);
  }

  Ranks& ranks_;
  const int rank_;
  protocol::BufferPool pool_;
  protocol::Pacer pacer_{[this](forest::NodeId to, double bytes_per_second) {
    ranks_.simulation_.transport().pace(ranks_.channel(rank_, to).flow, bytes_per_second);
  }};
  RingQueue<Work> work_;
  Work at_hand_;
  std::size_t frames_ = 0;  // to be received
  Picoseconds cost_ = 0;
  bool working_ = false;
  Picoseconds look_ = kNever;

 public:
  protocol::Session session;
};

Ranks::Ranks(Simulation& simulation, const RanksOptions& options)
    : simulation_(simulation), options_(options), cores_(simulation.network().cluster().shared_cores) {
  const cluster::Cluster& cluster = simulation.network().cluster();
  nodes_ = options.nodes;
  if (nodes_.empty()) {
    nodes_.resize(static_cast<std::size_t>(cluster.workers()));
    std::iota(nodes_.begin(), nodes_.end(), 0);
  }
  std::vector<bool> taken(cluster.nodes.size(), false);
  size_ = static_cast<int>(nodes_.size());
  protocol::Members members{0, size_, {}};
  for (const int node : nodes_) {
    if (node < 0 || node >= cluster.workers()) refuse("a group's node {} is no worker", node);
    const auto i = static_cast<std::size_t>(node);
    if (taken[i]) refuse("a group has {} twice: expected each worker once", cluster.nodes[i].name);
    taken[i] = true;
    members.names.push_back(fmt::format("rank {} ({})", members.names.size(), cluster.nodes[i].name));
  }
  const auto helpers = cluster::aggregators(cluster::restrict_to(cluster, nodes_));
  for (int node = 0; !helpers.empty() && static_cast<int>(nodes_.size()) <= helpers.back(); ++node) {
    const auto i = static_cast<std::size_t>(node);
    if (taken[i]) continue;
    nodes_.push_back(node);
    members.names.push_back("aggregator " + cluster.nodes[i].name);
  }
  const int n = static_cast<int>(nodes_.size());
  if (!options.carry_payloads) nothing_.resize(wire::kMaxPayload);
  calls_.resize(static_cast<std::size_t>(n));
  channels_.resize(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) {
    members.self = r;
    const bool runs = r < size_ || std::ranges::binary_search(helpers, r);
    hosts_.push_back(runs ? std::make_unique<Host>(*this, members) : nullptr);
  }
}

void Ranks::help(const Part& part) {
  for (int node = size_; node < static_cast<int>(hosts_.size()); ++node)
    if (hosts_[static_cast<std::size_t>(node)])
      session(node).serve(
          [=](std::uint64_t, const wire::Signature& signature) { return part(node, signature); });
}

Ranks::~Ranks() {
  simulation_.forget(*this);
}

protocol::Session& Ranks::session(int rank) {
  return hosts_[static_cast<std::size_t>(rank)]->session;
}

void Ranks::start(int rank, protocol::Operation operation, Picoseconds when,
                  std::span<const forest::Pace> paces) {
  CollectiveResult& result = results_.emplace_back();
  result.rank = rank;
  result.call = calls_[static_cast<std::size_t>(rank)]++;
  operation.user = &result;
  simulation_.at(when, [this, rank, paces, &result, op = std::move(operation)] {
    result.started = simulation_.now();
    const auto own = forest::paces_from(paces, rank);
    result.paced = !own.empty();
    if (result.paced) hosts_[static_cast<std::size_t>(rank)]->begin_paced(own);
    session(rank).start(op);
  });
}

Ranks::Channel& Ranks::channel(int from, int to) {
  auto& slot = channels_[static_cast<std::size_t>(from)][to];
  if (!slot) {
    slot = std::make_unique<Channel>();
    slot->from = from;
    slot->to = to;
    slot->flow = simulation_.open({node(from), node(to), options_.priority, kNoRoute}, *this);
    by_flow_.resize(slot->flow + 1);
    by_flow_[slot->flow] = slot.get();
  }
  return *slot;
}

void Ranks::on_delivered(FlowId flow, std::int64_t bytes, Picoseconds) {
  Channel& c = *by_flow_[flow];
  c.arrived = bytes;
  hosts_[static_cast<std::size_t>(c.to)]->want_receive(c);
}

void Ranks::on_writable(FlowId flow, Picoseconds) {
  Channel& c = *by_flow_[flow];
  hosts_[static_cast<std::size_t>(c.from)]->want_send(c);
}

}  // namespace talweg::sim
