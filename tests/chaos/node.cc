#include "chaos/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "chaos/world.h"
#include "steer/plan_word.h"
#include "steer/shared_plans.h"

namespace talweg::chaos {

namespace {
constexpr std::int64_t kHostTimeoutNs = 15'000'000'000;  // live::TcpOptions
constexpr Picoseconds kMicrosecond = kMillisecond / 1000;
constexpr std::size_t kPartBytes = 100;  // so that words come in several parts
}  // namespace

// One group, as this rank sees it.
struct Node::Member : protocol::Outbox {
  Member(Node& owner, int index, std::uint32_t number, std::vector<int> ranks, std::vector<Record>& list)
      : node(owner),
        group(index),
        id(number),
        members(std::move(ranks)),
        records(list),
        self(static_cast<int>(std::find(members.begin(), members.end(), owner.rank_) - members.begin())),
        size(static_cast<int>(std::count_if(members.begin(), members.end(),
                                            [&](int m) { return m < owner.world_.scenario().ranks; }))),
        early(members.size()),
        plans(self, size, static_cast<int>(members.size())) {
    std::vector<std::string> hosts;
    for (const int m : members) hosts.push_back("host" + std::to_string(m));
    protocol::Members names = protocol::ranks_only(self, hosts);
    names.ranks = size;
    if (owner.world_.mutation() != Mutation::no_eager_budget)
      names.eager_budget = owner.world_.scenario().eager_budget;
    if (size < static_cast<int>(hosts.size())) names.names.back() = "aggregator agg (" + hosts.back() + ")";
    session = std::make_unique<protocol::Session>(
        names, id, *this, owner.pool_,
        [n = size, me = self](int source, int destination, std::int64_t count, DataType type) {
          return message_plan(n, me, source, destination, count, type);
        });
    if (self == protocol::kPlanner) leader = std::make_unique<steer::PlanLeader>(plans, planner, nullptr);
    if (helps())
      session->serve([this](std::uint64_t call, const wire::Signature& s) { return part_of(call, s); });
  }
  bool helps() const { return self >= size; }

  // As group::Aggregator.
  std::optional<protocol::Operation> part_of(std::uint64_t call, const wire::Signature& signature) {
    const steer::SharedPlan told = plans.find(call, signature.plan);
    if (told == nullptr) {
      node.world_.marks().hit(Mark::kept_for_plan);
      return std::nullopt;
    }
    protocol::PlanLimits limits = kLittle;  // as ranks have here
    limits.nodes = size + 1;
    limits.digest = told->digest;
    const auto plan = protocol::make_plan(told->forest, self, limits);
    const forest::Request& request = plan->forest->request;
    protocol::Operation part = protocol::make_operation(
        {.op = request.op, .type = signature.type, .reduction = signature.reduction}, self, request);
    part.deadline_ns = std::numeric_limits<std::int64_t>::max();
    Record& record = served.emplace_back();
    record.memory = chaos::most_memory(*plan);
    node.memory_ += record.memory;
    node.most_memory_ = std::max(node.most_memory_, node.memory_);
    part.plan = plan;
    part.user = &record;
    return part;
  }
  void hear(const wire::Header& header, const std::byte* payload) {
    try {
      const auto word = word_parts.add({payload, header.length}, wire::plan_part_of(header).last);
      if (!word) return;
      plans.hear(*word);
    } catch (const Error& e) {
      session->on_damaged(protocol::kPlanner, e.code(), e.what());
    }
    helps() ? session->serve_early() : plan_held();
  }
  // Rank 0 to the aggregator, of the call that it starts next.
  void say(const std::shared_ptr<const protocol::Plan>& plan) {
    steer::PlanWord word;
    word.call = session->next_sequence();
    word.digest = plan->digest;
    word.request = (word.forest = plan->forest)->request;
    say(word, size);
  }
  void say(const steer::PlanWord& word, int to) {
    const std::vector<std::byte> bytes = to_bytes(word);
    for (std::size_t at = 0; at < bytes.size(); at += kPartBytes) {
      const std::size_t n = std::min(kPartBytes, bytes.size() - at);
      const bool last = at + n == bytes.size();
      send_text(to, encode(wire::PlanPart{id, last, static_cast<std::uint32_t>(n)}),
                std::string(reinterpret_cast<const char*>(bytes.data() + at), n));
    }
  }

  // As group::GroupImpl.
  bool led(const Record& record) const {
    return node.world_.scenario().led && group == 0 && !record.script->helped &&
           steer::is_shared(record.request);
  }
  void start_led(protocol::Operation operation, const forest::Request& request) {
    const std::uint64_t call = session->next_sequence();
    plan_held();
    operation.plan = held.empty() ? plan_for(call, request) : nullptr;
    const bool known = operation.plan != nullptr;
    session->start(std::move(operation));
    if (known || !session->waits_for_plan(call)) return;
    node.world_.marks().hit(Mark::plan_held);
    held.emplace_back(call, request);
  }
  std::shared_ptr<const protocol::Plan> plan_for(std::uint64_t call, const forest::Request& request) {
    if (leader)
      if (const auto word = leader->lead(call, request))
        for (std::size_t to = 1; to < members.size(); ++to) say(*word, static_cast<int>(to));
    auto plan = plans.find(call, request);
    if (plan == nullptr) return nullptr;
    const auto [before, fresh] = taken.try_emplace(request, plan->digest);
    if (!fresh && std::exchange(before->second, plan->digest) != plan->digest)
      node.world_.marks().hit(Mark::plan_changed);
    return plan;
  }
  void plan_held() {
    for (; !held.empty(); held.pop_front()) {
      const auto [call, request] = held.front();
      if (!session->waits_for_plan(call)) continue;
      auto plan = plan_for(call, request);
      if (plan == nullptr) return;
      session->plan(call, std::move(plan));
    }
  }

  bool send(int to, const wire::Header& header, const std::byte* payload, const protocol::Token& token,
            int priority, bool stable) override {
    live::OutFrame frame;
    frame.header = header;
    frame.payload = payload;
    frame.token = token;
    frame.priority = priority;
    frame.stable = stable;
    frame.reported = !token.data;
    if (header.type == wire::FrameType::announce && wire::announce_of(header).ask) {
      node.world_.marks().hit(Mark::question);
      asked.insert(header.sequence);
    }
    return push(to, std::move(frame));
  }
  void send_text(int to, const wire::Header& header, const std::string& text) override {
    live::OutFrame frame;
    frame.header = header;
    frame.text = text;
    frame.priority = protocol::kUrgent;
    push(to, std::move(frame));
  }
  bool push(int to, live::OutFrame frame) {
    Peer& peer = node.peer(members[static_cast<std::size_t>(to)]);
    if (peer.gone) return true;
    const bool owned = frame.reported;
    peer.out[frame.header.tree % peer.out.size()]->push(std::move(frame));
    node.wake();
    return owned;
  }
  void cancel(std::uint64_t run) override {
    for (Peer& peer : node.peers_) {
      for (Pipe* pipe : peer.out) pipe->cancel(id, run);
      if (node.world_.mutation() == Mutation::keep_placing) continue;
      for (Pipe* pipe : peer.in) pipe->forget_place(id, run);
    }
  }
  void look_at(std::int64_t when_ns) override {
    look_ns = std::min(look_ns, when_ns);
    node.world_.simulation().at(when_ns * 1000, [&owner = node] { owner.tick(false); });
  }
  void completed(void* user, const protocol::Outcome& outcome) override {
    if (helps()) {
      if (user != nullptr) node.memory_ -= static_cast<Record*>(user)->memory;
      if (!outcome.ok) node.world_.marks().hit(Mark::helper_left_over);
      return;
    }
    node.on_completed(*this, *static_cast<Record*>(user), outcome);
  }

  Node& node;
  const int group;
  const std::uint32_t id;
  const std::vector<int> members;
  std::vector<Record>& records;
  const int self;
  const int size;        // ranks
  std::size_t next = 0;  // of its calls
  int running = 0;
  std::set<std::uint64_t> asked;  // collectives that all were asked about
  bool open = true;               // later groups: all members know it
  // What came for collectives that have not been started here, by sender and collective.
  std::vector<std::map<std::uint64_t, std::size_t>> early;
  steer::SharedPlans plans;
  steer::WordParts word_parts;
  std::deque<Record> served;  // by an aggregator
  std::int64_t look_ns = std::numeric_limits<std::int64_t>::max();
  Source planner;
  std::unique_ptr<steer::PlanLeader> leader;  // on rank 0
  std::deque<std::pair<std::uint64_t, forest::Request>> held;
  std::unordered_map<forest::Request, std::uint32_t, steer::RequestHash> taken;
  std::unique_ptr<protocol::Session> session;
};

Node::Node(World& world, int rank)
    : world_(world), rank_(rank), peers_(static_cast<std::size_t>(world.scenario().nodes())) {}
Node::~Node() = default;

void Node::join(int group, std::uint32_t id, const std::vector<int>& members, std::vector<Record>& records) {
  members_[id] = std::make_unique<Member>(*this, group, id, members, records);
}

// The new group can be used once its barrier has ended.
void Node::replace(int old_group, int group, const std::vector<int>& members, std::vector<Record>& records) {
  if (const auto it = members_.find(world_.id_of(old_group)); it != members_.end()) {
    it->second->session->close();
    members_.erase(it);
  }
  join(group, world_.id_of(group), members, records);
  members_.at(world_.id_of(group))->open = false;
}

void Node::begin(Picoseconds when) {
  if (when > 0) world_.marks().hit(Mark::late_start);
  schedule_program(when);
}

void Node::wake() {
  if (working_ || !alive_ || paused_) return;
  working_ = true;
  world_.after(static_cast<Picoseconds>(world_.random().below(20)) * kMicrosecond, [this] {
    working_ = false;
    if (alive_ && !paused_) work();
  });
}

// What one turn of an engine does, with what is there, in any order of the peers.
void Node::work() {
  bool more = false;
  const std::size_t n = peers_.size();
  const std::size_t first = world_.random().below(n);
  for (std::size_t i = 0; i < n && alive_; ++i) receive_from((first + i) % n, more);
  for (std::size_t i = 0; i < n && alive_; ++i)
    if (!peers_[(first + i) % n].gone)
      for (Pipe* pipe : peers_[(first + i) % n].out) more = pipe->flush() || more;
  if (more) wake();
  world_.check_finished();
}

void Node::receive_from(std::size_t p, bool& more) {
  Peer& peer = peers_[p];
  for (std::size_t s = 0; s < peer.in.size() && !peer.gone; ++s) {
    Pipe& pipe = *peer.in[s];
    bool any = true;
    for (std::uint64_t parts = 1 + world_.random().below(8); any && parts > 0 && !pipe.stale; --parts)
      any = pipe.receive();
    more = more || any;
  }
  if (!peer.gone) end_of_streams(p);
}

// As live::TcpLink::settle.
void Node::end_of_streams(std::size_t p) {
  Peer& peer = peers_[p];
  bool all = true;
  bool failed = false;
  for (Pipe* pipe : peer.in) {
    pipe->ended = pipe->ended || pipe->at_end();
    all = all && pipe->ended;
    failed = failed || (pipe->ended && !pipe->said_goodbye);
  }
  if (failed) {
    world_.marks().hit(Mark::end_of_stream);
    lose(static_cast<int>(p), ErrorCode::peer_failed, "it closed the connection");
  } else if (all) {
    peer.gone = true;
    for (Pipe* pipe : peer.in) pipe->stale = true;
    someone_left_ = true;
    gone(static_cast<int>(p), std::nullopt, "");
    for (Pipe* pipe : peer.out) pipe->forget();
  }
}

void Node::on_reset(int rank) {
  if (!alive_ || peer(rank).gone) return;
  world_.marks().hit(Mark::reset);
  lose(rank, ErrorCode::peer_failed, "connection reset");
}

void Node::lose(int rank, ErrorCode code, const std::string& why) {
  Peer& p = peer(rank);
  if (p.gone) return;
  p.gone = true;
  for (Pipe* pipe : p.in) pipe->stale = true;
  world_.tell_closed(rank_, rank, world_.random().below(2) == 0);
  gone(rank, code, why);
}

void Node::gone(int rank, std::optional<ErrorCode> code, const std::string& why) {
  if (world_.tracing())
    world_.trace(fmt::format("rank {}: rank {} is gone: {}", rank_, rank, code ? why : "it said goodbye"));
  for (const auto& [id, member] : members_) {
    const auto it = std::find(member->members.begin(), member->members.end(), rank);
    if (it != member->members.end())
      member->session->on_peer_gone(static_cast<int>(it - member->members.begin()), code, why);
  }
}

void Node::tick(bool look_for_hosts) {
  if (!alive_ || paused_) return;
  if (world_.mutation() != Mutation::no_deadlines)
    for (const auto& [id, member] : members_)
      if (std::min(member->look_ns, member->session->next_deadline_ns()) <= world_.now_ns()) {
        member->look_ns = std::numeric_limits<std::int64_t>::max();
        member->session->on_time(world_.now_ns());
        member->plan_held();
      }
  if (!look_for_hosts || in_flight() == 0) return;
  // As live::TcpLink::check_host.
  const auto& transport = world_.simulation().transport();
  for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
    Peer& p = peer(other);
    if (p.gone) continue;
    for (const Pipe* out : p.out)
      p.answered = std::max({p.answered, out->opened, transport.answered(out->flow)});
    for (const Pipe* in : p.in) p.answered = std::max(p.answered, transport.heard(in->flow));
    const auto verdict = p.pulse.judge((world_.now() - p.answered) / 1000, kHostTimeoutNs);
    // A machine that is asked answers if the way to it and back is whole, stopped process or not.
    const bool whole = world_.reaches(rank_, other) && world_.reaches(other, rank_);
    if (verdict == live::Pulse::Verdict::ask && whole && world_.node(other).alive())
      p.answered = world_.now();
    if (verdict != live::Pulse::Verdict::lost) continue;
    world_.marks().hit(Mark::pulse);
    lose(other, ErrorCode::peer_failed, "its host has not answered for 15 s");
  }
}

protocol::Session::Placement Node::place(int from, const wire::Header& header) {
  const auto it = members_.find(header.group);
  if (it == members_.end()) return {};
  const Member& m = *it->second;
  const auto at = std::find(m.members.begin(), m.members.end(), from);
  if (at == m.members.end()) return {};
  return m.session->place(static_cast<int>(at - m.members.begin()), header);
}

void Node::on_frame(int from, const wire::Header& header, const std::byte* payload) {
  if (world_.tracing()) world_.trace(fmt::format("{} -> {}: {}", from, rank_, wire::to_string(header)));
  world_.on_frame(rank_, header);
  auto it = members_.find(header.group);
  if (it == members_.end()) {
    world_.marks().hit(Mark::unknown_group);
    if (world_.mutation() != Mutation::any_group || members_.empty()) return;
    it = std::prev(members_.end());
  }
  Member& m = *it->second;
  const auto at = std::find(m.members.begin(), m.members.end(), from);
  if (at == m.members.end()) {
    if (world_.mutation() == Mutation::none) world_.problem("a frame came from a rank that is no member");
    return;
  }
  const bool failure =
      header.type == wire::FrameType::failure || header.type == wire::FrameType::group_failure;
  if (failure && world_.mutation() == Mutation::deaf_to_failures) return;
  if (header.type == wire::FrameType::plan) {
    m.hear(header, payload);
    return;
  }
  if (!m.helps()) watch(m, static_cast<int>(at - m.members.begin()), header);
  m.session->on_frame(static_cast<int>(at - m.members.begin()), header, payload);
  m.plan_held();
}

// What is promised about frames of collectives that have not been started here.
void Node::watch(const Member& member, int from, const wire::Header& header) {
  Marks& marks = world_.marks();
  if (header.type == wire::FrameType::credit) marks.hit(Mark::credit);
  const bool message = (header.sequence >> 63) != 0;
  using wire::FrameType;
  if (message || header.type == FrameType::failure || header.type == FrameType::group_failure) return;
  const std::uint64_t next = member.session->next_sequence();
  if (header.type == wire::FrameType::announce && !wire::announce_of(header).ask &&
      member.asked.contains(header.sequence))
    marks.hit(Mark::answer);
  if (header.sequence < next) return;
  marks.hit(Mark::early_frame);
  if (header.length == 0) return;
  marks.hit(Mark::eager_chunk);
  auto& early = const_cast<Member&>(member).early[static_cast<std::size_t>(from)];
  early.erase(early.begin(), early.lower_bound(next));
  early[header.sequence] += header.length;
  std::size_t held = 0;
  for (const auto& [sequence, bytes] : early) held += bytes;
  if (held > world_.scenario().eager_budget)
    world_.problem(fmt::format("rank {} holds {} bytes from a rank that is ahead of it", rank_, held));
}

void Node::on_sent(std::uint32_t group, const protocol::Token& token) {
  if (const auto it = members_.find(group); it != members_.end()) it->second->session->on_sent(token);
}

void Node::schedule_program(Picoseconds after) {
  if (thinking_ || !alive_ || paused_) return;
  thinking_ = true;
  world_.after(after, [this] {
    thinking_ = false;
    if (alive_ && !paused_) run_program();
  });
}

bool Node::ready(const Member& m) const {
  if (m.next == m.records.size()) return false;
  const Record& record = m.records[m.next];
  if (!record.concerns_rank()) return true;
  if (!m.open || m.running >= world_.scenario().in_flight) return false;
  const int opens = record.script->opens;
  if (opens < 0) return true;
  // The group whose place is taken has done its work here.
  const int closes = world_.scenario().groups[static_cast<std::size_t>(opens)].closes;
  const auto it = members_.find(world_.id_of(closes));
  return it == members_.end() || (it->second->next == it->second->records.size() && it->second->running == 0);
}

Node::Member* Node::next_to_start() {
  std::vector<Member*> able;
  for (const auto& [id, member] : members_)
    if (ready(*member)) able.push_back(member.get());
  return able.empty() ? nullptr : able[world_.random().below(able.size())];
}

void Node::run_program() {
  Member* const member = next_to_start();
  if (member == nullptr) {
    world_.check_finished();
    return;
  }
  start(*member);
  const auto pace = static_cast<std::uint64_t>(world_.scenario().pace) + 1;
  schedule_program(static_cast<Picoseconds>(world_.random().below(pace)));
}

void Node::start(Member& m) {
  Record& record = m.records[m.next++];
  if (!record.concerns_rank()) return;
  if (record.script->opens >= 0) world_.form(record.script->opens, *this);
  record.started = true;
  const bool impatient = record.script->impatient == record.rank;
  record.deadline = world_.now() + (impatient ? record.script->patience : world_.patience());
  const std::int64_t deadline_ns = record.deadline / 1000;
  record.behind = m.running > 0;
  if (++m.running > 1) world_.marks().hit(Mark::several_in_flight);
  if (world_.tracing())
    world_.trace(fmt::format("rank {} starts {} of group {}", rank_, &record - m.records.data(), m.group));
  if (impatient) {  // on time, when it asks and when it gives up
    world_.after(record.script->patience - record.script->patience / 4, [this] { tick(false); });
    world_.after(record.script->patience, [this] { tick(false); });
  }
  if (record.script->message) {
    protocol::Message message = message_of(record);
    message.deadline_ns = deadline_ns;
    record.memory = 64 << 10;
    memory_ += record.memory;
    most_memory_ = std::max(most_memory_, memory_);
    record.rank == record.script->source ? m.session->send(message) : m.session->receive(message);
  } else {
    protocol::Operation operation = operation_of(record, world_.planning());
    operation.deadline_ns = deadline_ns;
    if (world_.mutation() == Mutation::no_fences) operation.fence = false;
    const std::int64_t patience_ns = deadline_ns - world_.now_ns();
    operation.question_ns = deadline_ns - std::min<std::int64_t>(patience_ns / 4, 1'000'000'000);
    if (m.led(record)) {
      record.memory = 0;
      for (const bool first : {true, false})
        record.memory =
            std::max(record.memory,
                     chaos::most_memory(*protocol::make_plan(led_forest(record.request, first), m.self)));
      operation.plan = nullptr;
    }
    memory_ += record.memory;
    most_memory_ = std::max(most_memory_, memory_);
    if (m.led(record)) {
      m.start_led(std::move(operation), record.request);
    } else {
      if (m.self == protocol::kPlanner && !operation.plan->helpers.empty()) m.say(operation.plan);
      m.session->start(std::move(operation));
    }
  }
  const bool told = record.done && !record.outcome.ok && record.outcome.code != ErrorCode::peer_failed &&
                    record.outcome.text.find(fmt::format("on rank {} ", record.rank)) == std::string::npos;
  if (told) world_.marks().hit(Mark::doomed);
}

void Node::on_completed(Member& m, Record& record, const protocol::Outcome& outcome) {
  if (++record.times_done > 1) world_.problem("an operation ended twice");
  record.done = true;
  record.outcome = outcome;
  record.after = record.buffers.out;
  memory_ -= record.memory;
  if (outcome.ok && someone_left_) world_.marks().hit(Mark::left_ended);
  if (outcome.ok && !record.script->message && record.request.op == Collective::barrier) {
    if (record.behind) world_.marks().hit(Mark::barrier);
    for (const Record* before = m.records.data(); before != &record; ++before)
      if (before->started && !before->done)
        world_.problem(fmt::format("rank {}: a barrier ended before what was called before it", rank_));
  }
  --m.running;
  if (world_.tracing())
    world_.trace(fmt::format("rank {} ends {} of group {}: {}", rank_, &record - m.records.data(), m.group,
                             outcome.ok ? "well" : outcome.text));
  if (record.script->opens >= 0 && outcome.ok) {
    const auto it = members_.find(world_.id_of(record.script->opens));
    if (it != members_.end()) it->second->open = true;
  }
  schedule_program(static_cast<Picoseconds>(world_.random().below(50)) * kMicrosecond);
}

void Node::pause(bool paused) {
  if (!alive_ || paused_ == paused) return;
  paused_ = paused;
  if (paused) return;
  wake();
  schedule_program(0);
}

void Node::crash() {
  if (!alive_) return;
  alive_ = false;
  for (const auto& [id, member] : members_)
    for (Record& record : member->records) record.lost = record.lost || !record.done;
  for (Peer& p : peers_) {
    for (Pipe* pipe : p.in) pipe->stale = true;
    for (Pipe* pipe : p.out) pipe->drop_unsent();
  }
  members_.clear();
}

void Node::leave() {
  if (!alive_ || paused_) return;
  for (const auto& [id, member] : members_) {
    for (Record& record : member->records) record.lost = record.lost || !record.started;
    member->session->close();
  }
  members_.clear();
  for (Peer& p : peers_) {
    if (p.gone) continue;
    for (Pipe* pipe : p.out) {
      live::OutFrame frame;
      frame.header = encode(wire::Goodbye{});
      pipe->push(std::move(frame));
      pipe->flush_all();
    }
  }
  alive_ = false;
  for (Peer& p : peers_)
    for (Pipe* pipe : p.in) pipe->stale = true;
}

void Node::abort() {
  if (!alive_ || paused_ || members_.empty()) return;
  auto it = members_.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(world_.random().below(members_.size())));
  it->second->session->abort("it was told to");
}

bool Node::helps() const {
  return rank_ >= world_.scenario().ranks;
}

bool Node::finished() const {
  if (!alive_) return true;
  for (const auto& [id, member] : members_)
    if (member->running > 0 || (member->helps() && member->session->in_flight() > 0) ||
        (member->next < member->records.size() && member->open))
      return false;
  return true;
}

std::size_t Node::in_flight() const {
  std::size_t n = 0;
  for (const auto& [id, member] : members_) n += member->session->in_flight();
  return n;
}

std::string Node::waiting() const {
  std::string text;
  for (const auto& [id, member] : members_)
    for (const auto& pending : member->session->pending()) text += "\n    " + pending.text;
  return text;
}

}  // namespace talweg::chaos
