#include "protocol/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <typeinfo>
#include <utility>

#include "protocol/session/session_run.h"

namespace talweg::protocol {

Members ranks_only(int self, const std::vector<std::string>& hosts) {
  Members members{self, static_cast<int>(hosts.size()), {}};
  for (std::size_t r = 0; r < hosts.size(); ++r)
    members.names.push_back(fmt::format("rank {} ({})", r, hosts[r]));
  return members;
}

Session::Session(Members members, std::uint32_t id, Outbox& outbox, BufferPool& pool,
                 MessagePlanner plan_message)
    : self_(members.self),
      ranks_(members.ranks),
      names_(std::move(members.names)),
      eager_budget_(members.eager_budget),
      id_(id),
      outbox_(outbox),
      pool_(pool),
      plan_message_(std::move(plan_message)),
      started_(names_.size(), 0),
      eager_(names_.size()),
      eager_bytes_(names_.size(), 0),
      early_bytes_(names_.size(), 0),
      gone_(names_.size(), false) {
  if (ranks_ > wire::kMaxRanks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a group has at most {} ranks, not {}", wire::kMaxRanks, ranks_));
}

Session::~Session() = default;

Session::Run& Session::add(std::uint64_t id) {
  std::unique_ptr<Run>* entry = nullptr;
  if (spare_.empty()) {
    entry = &(runs_[id] = std::make_unique<Run>());
  } else {
    Runs::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = id;
    entry = &runs_.insert(std::move(node)).position->second;
  }
  Run* const run = entry->get();
  run->id = id;
  run->order = order_++;
  run->begun = false;
  run->look_ns = kNoTime;
  run->failing = false;
  run->waits_for_earlier = false;
  run->asked = false;
  run->disputed = false;
  run->gated = false;
  run->missing = 0;
  run->unplanned = false;
  run->peer = kNone;
  run->source = kNone;
  return *run;
}

Session::Run* Session::find(std::uint64_t id) {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : it->second.get();
}

void Session::prepare(Run& run) {
  const Plan& plan = *run.op.plan;
  if (run.transfer == nullptr || run.made_for != typeid(plan)) {
    run.transfer = plan.make_transfer(pool_);
    run.made_for = typeid(plan);
  }
  run.transfer->reset(run.op.plan, run.op.operands);
}

std::uint64_t Session::start(Operation operation) {
  const std::uint64_t id = next_;
  start_at(id, operation);
  return id;
}

std::uint64_t Session::refuse(Operation operation, ErrorCode code, const std::string& reason) {
  const std::uint64_t id = next_;
  const Outcome refusal{false, code, reason, -1};
  start_at(id, operation, &refusal);
  return id;
}

bool Session::waits_for_plan(std::uint64_t id) {
  const Run* const run = find(id);
  return run != nullptr && run->unplanned;
}

void Session::plan(std::uint64_t id, std::shared_ptr<const Plan> plan) {
  Run* const run = find(id);
  if (run == nullptr || !run->unplanned) return;
  run->unplanned = false;
  run->op.plan = std::move(plan);
  for (int node = ranks_; node < nodes(); ++node) {
    if (!gone_[static_cast<std::size_t>(node)] || !concerns(*run, node)) continue;
    take_early(id);
    fail(*run, without(node).code, without(node).text);
    return;
  }
  engage(*run);
}

// Takes what is in the operation.
void Session::start_at(std::uint64_t id, Operation& operation, const Outcome* refusal) {
  next_ = std::max(next_, id + 1);
  Run& run = add(id);
  run.kind = Run::Kind::collective;
  run.op = std::move(operation);
  if (broken_) {
    finish(id, {false, broken_->code, context(run) + ": " + broken_->text, -1});
    return;
  }
  if (const auto doom = doomed_.find(id); doom != doomed_.end()) {
    Outcome outcome = std::move(doom->second);
    doomed_.erase(doom);
    take_early(id);
    if (!outcome.text.starts_with(to_string(run.op.signature) + " #"))
      outcome.text = context(run) + ": " + outcome.text;
    finish(id, outcome);
    return;
  }
  // Of who only helps, a rank may have left with all that it had to do done, before it was known what that
  // was.
  for (int node = 0; node < nodes() && !serve_; ++node) {
    if (!gone_[static_cast<std::size_t>(node)] || !concerns(run, node)) continue;
    take_early(id);
    fail(run, without(node).code, without(node).text);
    return;
  }
  if (refusal != nullptr) {
    take_early(id);
    fail(run, refusal->code, refusal->text);
    return;
  }
  if (run.op.plan != nullptr) {
    engage(run);
    return;
  }
  run.unplanned = true;
  post(kPlanner, encode(call(run, kPlanner), wire::Announce{false, true}), kUrgent);
  for (const Early& frame : take_early(id))
    if (find(id) != nullptr) on_collective_frame(frame.from, frame.header, frame.payload.data());
}

// The run has a plan.
void Session::engage(Run& run) {
  const std::uint64_t id = run.id;
  if (run.op.plan->digest != 0) run.op.signature.plan = run.op.plan->digest;
  prepare(run);
  // Who only helps hears of an operation from ranks that agree.
  run.gated = !run.op.all_contribute && ranks_ > 1 && is_rank(self_);
  run.agreed.assign(run.gated ? static_cast<std::size_t>(ranks_) : 0, false);
  run.missing = run.gated ? ranks_ - 1 : 0;
  announce(run);
  begin_if_agreed(run);
  for (const Early& frame : take_early(id))
    if (Run* still = find(id); still != nullptr)
      deliver(*still, frame.from, frame.header, frame.payload.data());
  if (serve_) fail_if_left(id);
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

// Who only helps starts with the first frame that it gets, and need not be told.
void Session::announce(const Run& run) {
  if (ranks_ == 1) return;
  const auto tell = [&](int to) { post(to, encode(call(run, to), wire::Announce{}), kUrgent); };
  if (run.gated) {
    for (int i = 1; i < ranks_; ++i) tell((self_ + i) % ranks_);
    return;
  }
  for (const NodeId to : run.op.plan->announce_to) tell(to);
}

// By whatever plan.
bool Session::calls_the_same(const Run& run, int from, const wire::Signature& theirs) const {
  const wire::Signature& ours = run.op.signature;
  const std::int64_t expected = run.expected(from);
  return theirs.op == ours.op && theirs.type == ours.type && theirs.reduction == ours.reduction &&
         theirs.root == ours.root && theirs.layout == ours.layout &&
         (expected == theirs.count || expected == kUnknownCount || theirs.count == kUnknownCount);
}

bool Session::agrees(const Run& run, int from, const wire::Header& h) const {
  const std::uint32_t plan = run.op.signature.plan;
  return (h.plan == plan || h.plan == 0 || plan == 0) && calls_the_same(run, from, wire::signature_of(h));
}

void Session::begin_if_agreed(Run& run) {
  if (run.missing > 0 || run.begun) return;
  run.begun = true;
  Acting acting(*this, run);
  run.transfer->begin(acting);
  settle(run);
}

std::uint32_t Session::initial_grant(const Run& run, int node, std::uint32_t bytes) {
  const auto n = static_cast<std::size_t>(node);
  // Where all ranks wait for each other, nobody sends before all have started.
  if (!run.op.all_contribute || run.kind != Run::Kind::collective || started_[n] > run.id) return kStarted;
  if (bytes > kEagerBytes) return 0;
  if (eager_bytes_[n] + bytes > eager_budget_) {
    // Normally our data tell that we have started, and the other rank's tell that it has. Data that have to
    // wait tell nothing, and nothing else may be on its way from there: so we tell, and ask.
    post(node, encode(call(run, node), wire::Announce{true}), kUrgent);
    return 0;
  }
  eager_bytes_[n] += bytes;
  eager_[n].push({run.id, bytes});
  return 1;
}

std::uint32_t Session::grant_of_helper(const Run& run, int node, std::size_t bytes) {
  Helper& helper = helpers_[node];
  const std::uint32_t plan = run.op.signature.plan;
  if (plan == 0 || knows_plan(helper, plan, run.id)) return kStarted;
  auto& unheard = eager_bytes_[static_cast<std::size_t>(node)];
  if (unheard + bytes > kUnheardBudget) {
    post(node, encode(call(run, node), wire::Announce{true}), kUrgent);
    return 0;
  }
  unheard += bytes;
  helper.unheard[plan] += bytes;
  return kStarted;
}

// What it has shown at a call before a renewal says nothing of those after it.
bool Session::knows_plan(const Helper& helper, std::uint32_t plan, std::uint64_t call) const {
  const auto shown = helper.known.find(plan);
  return shown != helper.known.end() && std::ranges::none_of(renewals_, [&](std::uint64_t renewal) {
           return shown->second < renewal && renewal <= call;
         });
}

// A node that only helps knows this plan: what it is sent by it, it takes.
void Session::saw_plan(int node, const wire::Header& h) {
  Helper& helper = helpers_[node];
  const std::uint32_t plan = h.plan;
  if (plan == 0) return;
  const bool known = knows_plan(helper, plan, h.sequence);
  if (!helper.known.contains(plan) && helper.known.size() == kMostKnown) helper.known.clear();
  std::uint64_t& last = helper.known[plan];
  last = std::max(last, h.sequence);
  if (known) return;
  if (const auto sent = helper.unheard.extract(plan))
    eager_bytes_[static_cast<std::size_t>(node)] -= sent.mapped();
  std::vector<std::uint64_t> waiting;
  for (const auto& [id, run] : runs_)
    if (run->begun && !run->failing && run->op.signature.plan == plan) waiting.push_back(id);
  for (const std::uint64_t id : waiting)
    if (Run* const run = find(id); run != nullptr) {
      Acting acting(*this, *run);
      run->transfer->on_ready(node, acting);
      settle(*run);
    }
}

void Session::saw_start(int from, const wire::Header& h) {
  const std::uint64_t sequence = h.sequence;
  if (!is_rank(from)) saw_plan(from, h);
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
    if (run == nullptr || run->gated || !run->begun || !is_rank(from)) continue;
    Acting acting(*this, *run);
    run->transfer->on_ready(from, acting);
    settle(*run);
  }
}

Session::Placement Session::place(int from, const wire::Header& h) {
  found_ = {};
  if (!wire::is_chunk(h)) return {};
  std::uint64_t id = h.sequence;
  if ((id & kMessageBit) != 0) {
    const auto it = incoming_.find({from, id});
    if (it == incoming_.end()) return {};
    id = it->second;
  } else {
    saw_start(from, h);
  }
  Run* run = find(id);
  if (run == nullptr || run->failing || run->unplanned || !agrees(*run, from, h)) return {};
  found_ = {run, from, h.type, h.sequence, h.tree, h.chunk};
  return {run->begun ? run->transfer->place(from, h) : nullptr, id};
}

void Session::on_frame(int from, const wire::Header& h, const std::byte* payload) {
  // Mostly the frame that has just been placed: its run is found, and agrees.
  const Found frame{found_.run, from, h.type, h.sequence, h.tree, h.chunk};
  if (Run* const run = found_.run; run != nullptr && std::exchange(found_, {}) == frame) {
    const std::uint64_t id = run->id;
    deliver(*run, from, h, payload, true);
    fail_if_left(id);
    return;
  }
  if (h.type == wire::FrameType::failure) {
    on_failure_frame(from, h, payload);
  } else if (h.type == wire::FrameType::group_failure || h.type == wire::FrameType::leave) {
    on_group_frame(from, h, payload);
  } else if (broken_ || h.type == wire::FrameType::past) {
    return;
  } else if ((h.sequence & kMessageBit) != 0) {
    on_message_frame(from, h, payload);
  } else {
    on_collective_frame(from, h, payload);
  }
}

void Session::on_collective_frame(int from, const wire::Header& h, const std::byte* payload) {
  if (h.type != wire::FrameType::announce || !wire::announce_of(h).held) saw_start(from, h);
  if (serve_ && !has_ended(h.sequence) && find(h.sequence) == nullptr)
    serve_call(h.sequence, wire::signature_of(h));
  if (serve_ ? !has_ended(h.sequence) && find(h.sequence) == nullptr : h.sequence >= next_) {
    keep_early(from, h, payload);
    return;
  }
  if (Run* run = find(h.sequence); run != nullptr) {
    if (!run->unplanned)
      deliver(*run, from, h, payload);
    else if (agrees(*run, from, h))
      keep_early(from, h, payload);
    else
      mismatch(*run, from, wire::signature_of(h));
    fail_if_left(h.sequence);
  } else if (h.type == wire::FrameType::announce && wire::announce_of(h).ask) {
    // It has ended here; what is still on the way for it no longer matters, but this rank is not the one that
    // others wait for.
    wire::CallId call = wire::call_of(h);
    call.signature.count = kUnknownCount;
    post(from, encode(call, wire::Announce{}), kUrgent);
  }
}

void Session::keep_early(int from, const wire::Header& h, const std::byte* payload) {
  auto& kept = early_bytes_[static_cast<std::size_t>(from)];
  if (kept + sizeof h + h.length > kEarlyLimit) {
    on_damaged(from, ErrorCode::corrupted,
               "it sent more than its eager budget for collectives not started here");
    return;
  }
  kept += sizeof h + h.length;
  early_.emplace(h.sequence, Early{from, h, {payload, payload + h.length}});
}

std::size_t Session::early_bytes() const {
  std::size_t kept = 0;
  for (const auto& [id, frame] : early_) kept += sizeof frame.header + frame.payload.size();
  return kept;
}

void Session::deliver(Run& run, int from, const wire::Header& h, const std::byte* payload, bool agreed) {
  if (run.failing) return;
  const std::uint64_t id = run.id;
  if (run.asked) run.answered[static_cast<std::size_t>(from)] = true;
  if (!agreed && !agrees(run, from, h)) {
    mismatch(run, from, wire::signature_of(h));
    return;
  }
  if (h.type == wire::FrameType::announce && wire::announce_of(h).ask)
    post(from, encode(call(run, from), wire::Announce{}), kUrgent);
  if (h.type == wire::FrameType::announce && wire::announce_of(h).held) return;
  if (run.gated && !run.begun) {
    if (h.type == wire::FrameType::announce) {
      if (is_rank(from) && !run.agreed[static_cast<std::size_t>(from)]) {
        run.agreed[static_cast<std::size_t>(from)] = true;
        --run.missing;
        begin_if_agreed(run);
        Run* begun = find(id);
        if (begun == nullptr || !begun->begun) return;
        for (const Early& frame : std::exchange(begun->held, {})) {
          begun = find(id);
          if (begun != nullptr) deliver(*begun, frame.from, frame.header, frame.payload.data());
        }
      }
      return;
    }
    if (!run.op.tell.empty()) {
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
  if (h.type != wire::FrameType::announce) {
    Acting acting(*this, run);
    wrong = run.transfer->on_frame(from, h, payload, acting);
  }
  if (wrong != nullptr) {
    on_damaged(from, ErrorCode::corrupted, std::string("it sent a frame that makes no sense: ") + wrong);
    return;
  }
  settle(run);
}

void Session::on_sent(const Token& token) {
  Run* run = find(token.run);
  if (run == nullptr) return;
  Acting acting(*this, *run);
  run->transfer->on_sent(token.piece, token.buffer, run->failing ? nullptr : &acting);
  if (!run->failing) settle(*run);
}

void Session::settle(Run& run) {
  const bool done = run.transfer->done();
  const std::int64_t when = done ? kNoTime : run.transfer->next_time_ns();
  if (when != std::exchange(run.look_ns, when) && when != kNoTime) outbox_.look_at(when);
  if (!done) return;
  if (run.op.fence && earliest_before(run) != nullptr) {
    fences_ += run.waits_for_earlier ? 0 : 1;
    run.waits_for_earlier = true;
    return;
  }
  finish(run.id, {true, ErrorCode::aborted, {}, run.peer, run.transfer->way()});
}

// Of what is in flight, the oldest that was started before this run; null if there is none.
const Session::Run* Session::earliest_before(const Run& run) const {
  const Run* oldest = &run;
  for (const auto& [id, other] : runs_)
    if (other->order < oldest->order) oldest = other.get();
  return oldest == &run ? nullptr : oldest;
}

void Session::finish(std::uint64_t id, const Outcome& outcome) {
  Runs::node_type node = runs_.extract(id);
  Run* const run = node.mapped().get();
  if (run->unplanned) take_early(id);
  if (run->kind == Run::Kind::receive && run->peer >= 0) incoming_.erase({run->peer, run->number});
  if (run->waits_for_earlier) --fences_;
  if (run->transfer != nullptr) run->transfer->release();
  if (found_.run == run) found_ = {};
  if (serve_) remember_end(id);
  run->held.clear();
  void* user = run->op.user;
  spare_.push_back(std::move(node));
  outbox_.completed(user, outcome);
  if (!renewals_.empty()) tell_passed();
  if (fences_ > 0 && !broken_) lift_fences();
}

void Session::renew_plans(std::uint64_t call) {
  if (nodes() == ranks_) return;
  renewals_.push_back(call);
  tell_passed();
}

void Session::tell_passed() {
  std::uint64_t oldest = next_;
  for (const auto& [id, run] : runs_) oldest = std::min(oldest, id);
  for (; !broken_ && !renewals_.empty() && renewals_.front() <= oldest; renewals_.pop_front())
    for (int node = ranks_; node < nodes(); ++node) {
      std::erase_if(helpers_[node].known, [&](const auto& plan) { return plan.second < renewals_.front(); });
      if (!gone_[static_cast<std::size_t>(node)]) post(node, encode(wire::Past{id_, renewals_.front()}), 0);
    }
}

void Session::lift_fences() {
  std::vector<std::uint64_t> waiting;
  for (const auto& [id, run] : runs_)
    if (run->waits_for_earlier) waiting.push_back(id);
  std::sort(waiting.begin(), waiting.end());
  for (const std::uint64_t id : waiting)
    if (Run* run = find(id); run != nullptr && earliest_before(*run) == nullptr)
      finish(id, {true, ErrorCode::aborted, {}, -1, run->transfer->way()});
}

void Session::serve(Server server) {
  serve_ = std::move(server);
}

void Session::serve_early() {
  std::vector<std::pair<std::uint64_t, wire::Signature>> waiting;
  for (const auto& [id, frame] : early_)
    if (waiting.empty() || waiting.back().first != id)
      waiting.emplace_back(id, wire::signature_of(frame.header));
  for (const auto& [id, signature] : waiting) serve_call(id, signature);
}

// Only rank 0 tells plans: what it has not told before it left is never known.
void Session::serve_call(std::uint64_t id, const wire::Signature& signature) {
  if (auto operation = serve_(id, signature)) {
    start_at(id, *operation);
  } else if (gone_[kPlanner]) {
    const Outcome refusal = without(kPlanner);
    Operation none;
    none.signature = signature;
    start_at(id, none, &refusal);
  }
}

bool Session::has_ended(std::uint64_t id) const {
  return id < ended_below_ || ended_.contains(id);
}

// A frame may come after the end (an announcement, on a link that nothing else travels): it must not start
// the operation again.
void Session::remember_end(std::uint64_t id) {
  ended_.insert(id);
  if (ended_.size() <= kRemembered) return;
  ended_below_ = *ended_.begin() + 1;
  ended_.erase(ended_.begin());
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
