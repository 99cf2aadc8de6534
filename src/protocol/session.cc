#include "protocol/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "protocol/session_run.h"

namespace talweg::protocol {

Session::Session(int rank, std::vector<std::string> hosts, std::uint32_t id, Outbox& outbox, BufferPool& pool,
                 MessagePlanner plan_message)
    : rank_(rank),
      hosts_(std::move(hosts)),
      id_(id),
      outbox_(outbox),
      pool_(pool),
      plan_message_(std::move(plan_message)),
      started_(hosts_.size(), 0),
      eager_(hosts_.size()),
      eager_bytes_(hosts_.size(), 0),
      early_bytes_(hosts_.size(), 0),
      gone_(hosts_.size(), false) {
  if (hosts_.size() > wire::kMaxRanks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a group has at most {} ranks, not {}", wire::kMaxRanks, hosts_.size()));
}

Session::~Session() = default;

Session::Run& Session::add(std::uint64_t id) {
  std::unique_ptr<Run>* entry = nullptr;
  if (spare_.empty()) {
    entry = &(runs_[id] = std::make_unique<Run>(pool_));
  } else {
    Runs::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = id;
    entry = &runs_.insert(std::move(node)).position->second;
  }
  Run* const run = entry->get();
  run->id = id;
  run->failing = false;
  run->asked = false;
  run->gated = false;
  run->missing = 0;
  run->peer = kNone;
  run->source = kNone;
  return *run;
}

Session::Run* Session::find(std::uint64_t id) {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : it->second.get();
}

std::uint64_t Session::start(Operation operation) {
  const std::uint64_t id = next_++;
  Run& run = add(id);
  run.kind = Run::Kind::collective;
  run.op = std::move(operation);
  if (broken_) {
    finish(id, {false, broken_->code, context(run) + ": " + broken_->text, -1});
    return id;
  }
  if (const auto doom = doomed_.find(id); doom != doomed_.end()) {
    const Outcome outcome = std::move(doom->second);
    doomed_.erase(doom);
    take_early(id);
    finish(id, outcome);
    return id;
  }
  if (const auto left = std::find(gone_.begin(), gone_.end(), true); left != gone_.end()) {
    const int who_left = static_cast<int>(left - gone_.begin());
    take_early(id);
    fail(run, ErrorCode::peer_failed, who(who_left) + " has left the group");
    return id;
  }
  const int size = static_cast<int>(hosts_.size());
  run.run.reset(run.op.plan, run.op.operands);
  run.gated = !run.op.all_contribute && size > 1;
  run.agreed.assign(run.gated ? hosts_.size() : 0, false);
  run.missing = run.gated ? size - 1 : 0;
  announce(run);
  begin_if_agreed(run);
  for (const Early& frame : take_early(id))
    if (Run* still = find(id); still != nullptr)
      deliver(*still, frame.from, frame.header, frame.payload.data());
  return id;
}

// What came for a collective before it was started here.
std::vector<Session::Early> Session::take_early(std::uint64_t id) {
  std::vector<Early> frames;
  if (early_.empty() || early_.begin()->first > id) return frames;
  const auto [first, last] = early_.equal_range(id);
  for (auto it = first; it != last; ++it) {
    early_bytes_[static_cast<std::size_t>(it->second.from)] -=
        sizeof(wire::Header) + it->second.payload.size();
    frames.push_back(std::move(it->second));
  }
  early_.erase(first, last);
  return frames;
}

wire::CallId Session::call(const Run& run, int to) const {
  wire::CallId id{id_, run.kind == Run::Kind::collective ? run.id : run.number, run.op.signature};
  id.signature.count = run.told(to);
  return id;
}

void Session::post(int to, const wire::Header& h, int priority) {
  outbox_.send(to, h, nullptr, {}, priority, false);
}

void Session::announce(const Run& run) {
  const int size = static_cast<int>(hosts_.size());
  if (size == 1) return;
  const auto tell = [&](int to) { post(to, encode(call(run, to), wire::Announce{}), kUrgent); };
  if (run.gated) {
    for (int i = 1; i < size; ++i) tell((rank_ + i) % size);
    return;
  }
  for (const NodeId to : run.op.plan->announce_to) tell(to);
}

bool Session::agrees(const Run& run, int from, const wire::Header& h) const {
  const wire::Signature& ours = run.op.signature;
  const wire::Signature theirs = wire::signature_of(h);
  if (theirs.op != ours.op || theirs.type != ours.type || theirs.reduction != ours.reduction ||
      theirs.root != ours.root || theirs.layout != ours.layout)
    return false;
  if (theirs.plan != ours.plan && theirs.plan != 0 && ours.plan != 0) return false;
  const std::int64_t expected = run.expected(from);
  return expected == theirs.count || expected == kUnknownCount || theirs.count == kUnknownCount;
}

void Session::begin_if_agreed(Run& run) {
  if (run.missing > 0 || run.run.begun()) return;
  acting_ = &run;
  run.run.begin(*this, [&](int node, std::uint32_t bytes) { return initial_grant(run, node, bytes); });
  acting_ = nullptr;
  finish_if_done(run);
}

std::uint32_t Session::initial_grant(const Run& run, int node, std::uint32_t bytes) {
  const auto n = static_cast<std::size_t>(node);
  if (run.gated || run.kind != Run::Kind::collective || started_[n] > run.id) return kMostWindow;
  if (bytes > kEagerBytes) return 0;
  if (eager_bytes_[n] + bytes > kEagerBudget) {
    // Normally our data tell that we have started, and the other rank's tell that it has. Data that have to
    // wait tell nothing, and nothing else may be on its way from there: so we tell, and ask.
    post(node, encode(call(run, node), wire::Announce{true}), kUrgent);
    return 0;
  }
  eager_bytes_[n] += bytes;
  eager_[n].push({run.id, bytes});
  return 1;
}

void Session::saw_start(int from, std::uint64_t sequence) {
  const auto f = static_cast<std::size_t>(from);
  if (started_[f] > sequence) return;
  const std::uint64_t first = started_[f];
  started_[f] = sequence + 1;
  while (!eager_[f].empty() && eager_[f].front().sequence <= sequence) {
    eager_bytes_[f] -= eager_[f].front().bytes;
    eager_[f].pop();
  }
  for (std::uint64_t s = first; s <= sequence && s < next_; ++s) {
    Run* run = find(s);
    if (run == nullptr || run->gated || !run->run.begun()) continue;
    acting_ = run;
    run->run.on_ready(from, *this);
    acting_ = nullptr;
    finish_if_done(*run);
  }
}

bool Session::send_chunk(const Chunk& chunk) {
  const wire::Header h =
      encode(call(*acting_, chunk.to), wire::Chunk{chunk.up, chunk.tree, chunk.chunk, chunk.bytes});
  return outbox_.send(chunk.to, h, chunk.data, {acting_->id, chunk.tree, chunk.buffer, chunk.progress},
                      acting_->op.priority, chunk.stable);
}

void Session::send_credit(NodeId to, std::uint32_t tree, std::uint32_t granted) {
  const wire::Header h = encode(call(*acting_, to), wire::Credit{tree, granted});
  post(to, h, kUrgent);  // behind the data that wait for the same rank it would hold up what it grants
}

Session::Placement Session::place(int from, const wire::Header& h) {
  if (h.type != wire::FrameType::down) return {};
  std::uint64_t id = h.sequence;
  if ((id & kMessageBit) != 0) {
    const auto it = incoming_.find({from, id});
    if (it == incoming_.end()) return {};
    id = it->second;
  } else {
    saw_start(from, id);
  }
  Run* run = find(id);
  if (run == nullptr || run->failing || !agrees(*run, from, h)) return {};
  const wire::Chunk chunk = wire::chunk_of(h);
  return {run->run.begun() ? run->run.place(from, chunk.tree, chunk.chunk, chunk.bytes) : nullptr, id};
}

void Session::on_frame(int from, const wire::Header& h, const std::byte* payload) {
  if (h.type == wire::FrameType::failure) {
    on_failure_frame(from, h, payload);
  } else if (h.type == wire::FrameType::group_failure || h.type == wire::FrameType::leave) {
    on_group_frame(from, h, payload);
  } else if (broken_) {
    return;
  } else if ((h.sequence & kMessageBit) != 0) {
    on_message_frame(from, h, payload);
  } else {
    on_collective_frame(from, h, payload);
  }
}

void Session::on_collective_frame(int from, const wire::Header& h, const std::byte* payload) {
  saw_start(from, h.sequence);
  if (h.sequence >= next_) {
    auto& held = early_bytes_[static_cast<std::size_t>(from)];
    if (held + sizeof h + h.length > kEarlyLimit) {
      on_damaged(from, ErrorCode::corrupted,
                 "it sent more than its eager budget for collectives not started here");
      return;
    }
    held += sizeof h + h.length;
    early_.emplace(h.sequence, Early{from, h, {payload, payload + h.length}});
    return;
  }
  if (Run* run = find(h.sequence); run != nullptr) {
    deliver(*run, from, h, payload);
  } else if (h.type == wire::FrameType::announce && wire::announce_of(h).ask) {
    // It has ended here; what is still on the way for it no longer matters, but this rank is not the one that
    // others wait for.
    wire::CallId call = wire::call_of(h);
    call.signature.count = kUnknownCount;
    post(from, encode(call, wire::Announce{}), kUrgent);
  }
}

void Session::deliver(Run& run, int from, const wire::Header& h, const std::byte* payload) {
  if (run.failing) return;
  const std::uint64_t id = run.id;
  const bool waited = run.gated && !run.run.begun();
  if (run.asked) run.answered[static_cast<std::size_t>(from)] = true;
  if (!agrees(run, from, h)) {
    mismatch(run, from, wire::signature_of(h));
    return;
  }
  if (h.type == wire::FrameType::announce && wire::announce_of(h).ask)
    post(from, encode(call(run, from), wire::Announce{}), kUrgent);
  if (run.gated && !run.run.begun()) {
    if (h.type == wire::FrameType::announce) {
      if (!run.agreed[static_cast<std::size_t>(from)]) {
        run.agreed[static_cast<std::size_t>(from)] = true;
        --run.missing;
        begin_if_agreed(run);
        Run* begun = find(id);
        if (begun == nullptr || !begun->run.begun()) return;
        for (const Early& frame : std::exchange(begun->held, {})) {
          begun = find(id);
          if (begun != nullptr) deliver(*begun, frame.from, frame.header, frame.payload.data());
        }
        fail_if_left(id);
      }
      return;
    }
    if (wire::is_chunk(h) && !run.op.tell.empty()) {
      // The sender has heard from all, but only about the blocks between them and itself: wait for all
      // ourselves.
      run.held.push_back({from, h, {payload, payload + h.length}});
      return;
    }
    // Whoever sends data has heard from all ranks that they agree with it, and it agrees with us.
    run.missing = 0;
    begin_if_agreed(run);
    if (find(id) == nullptr) return;
  }
  const char* wrong = nullptr;
  acting_ = &run;
  switch (h.type) {
    case wire::FrameType::up: {
      const wire::Chunk c = wire::chunk_of(h);
      wrong = run.run.on_up(from, c.tree, c.chunk, payload, c.bytes, *this);
      break;
    }
    case wire::FrameType::down: {
      const wire::Chunk c = wire::chunk_of(h);
      wrong = run.run.on_down(from, c.tree, c.chunk, payload, c.bytes, *this);
      break;
    }
    case wire::FrameType::credit: {
      const wire::Credit c = wire::credit_of(h);
      wrong = run.run.on_credit(from, c.tree, c.granted, *this);
      break;
    }
    default:
      break;
  }
  acting_ = nullptr;
  if (wrong != nullptr) {
    on_damaged(from, ErrorCode::corrupted, std::string("it sent a frame that makes no sense: ") + wrong);
    return;
  }
  finish_if_done(run);
  if (waited) fail_if_left(id);
}

void Session::on_sent(const Token& token) {
  Run* run = find(token.run);
  if (run == nullptr) return;
  run->run.on_sent(token.tree, token.buffer);
  if (!run->failing) finish_if_done(*run);
}

void Session::finish_if_done(Run& run) {
  if (run.run.done()) finish(run.id, {true, ErrorCode::aborted, {}, run.peer});
}

void Session::finish(std::uint64_t id, const Outcome& outcome) {
  Runs::node_type node = runs_.extract(id);
  Run* const run = node.mapped().get();
  if (run->kind == Run::Kind::receive && run->peer >= 0) incoming_.erase({run->peer, run->number});
  run->run.release();
  run->held.clear();
  void* user = run->op.user;
  spare_.push_back(std::move(node));
  outbox_.completed(user, outcome);
}

std::int64_t Session::next_deadline_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (const auto& [id, run] : runs_) {
    const bool question = run->op.question_ns > 0 && !run->asked;
    next = std::min(next, question ? run->op.question_ns : run->op.deadline_ns);
  }
  return next;
}

}  // namespace talweg::protocol
