// Everything that can go wrong, and who is told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "protocol/session/session.h"
#include "protocol/session/session_run.h"

namespace talweg::protocol {

namespace {
constexpr std::size_t kMaxText = 2000;  // of a failure's reason on the wire
constexpr std::size_t kMaxDoomed =
    1024;  // failures remembered for collectives not started; older deadlines catch the rest
}  // namespace

bool Session::concerns(const Run& run, int node) const {
  if (is_rank(node)) return true;
  if (run.op.plan == nullptr) return false;
  const std::vector<NodeId>& helpers = run.op.plan->helpers;
  return std::binary_search(helpers.begin(), helpers.end(), node);
}

std::string Session::context(const Run& run) const {
  const std::string op = to_string(run.op.signature);
  const char* phase = run.begun ? "data" : "agreement";
  if (run.kind == Run::Kind::collective)
    return fmt::format("{} #{} on {}, phase {}", op, run.id, who(self_), phase);
  const bool sends = run.kind == Run::Kind::send;
  const int peer = run.peer < 0 ? run.source : run.peer;
  return fmt::format("{} #{} {} {} tag {} on {}, phase {}", op, run.id & ~kMessageBit, sends ? "to" : "from",
                     peer < 0 ? std::string("any rank") : who(peer), run.tag, who(self_), phase);
}

void Session::find_missing(const Run& run, std::vector<int>& absent, std::vector<int>& silent) const {
  if (run.kind != Run::Kind::collective) {
    const int peer = run.peer < 0 ? run.source : run.peer;
    if (peer >= 0) (run.begun ? silent : absent).push_back(peer);
    return;
  }
  const auto classify = [&](int r) {
    (started_[static_cast<std::size_t>(r)] > run.id ? silent : absent).push_back(r);
  };
  if (run.unplanned) {
    for (const int r : planners_) classify(r);
  } else if (run.gated && !run.begun) {
    for (int r = 0; r < ranks_; ++r)
      if (r != self_ && !run.agreed[static_cast<std::size_t>(r)]) classify(r);
  } else {
    for (const NodeId node : run.transfer->waiting_for()) classify(node);
  }
}

std::vector<Session::Pending> Session::pending() const {
  std::vector<const Run*> runs;
  for (const auto& [id, run] : runs_) runs.push_back(run.get());
  std::ranges::sort(runs, {}, &Run::order);
  std::vector<Pending> list;
  for (const Run* const run : runs) {
    Pending p{run->op.user, run->begun, {}, {}, context(*run) + ": " + waiting_text(*run)};
    find_missing(*run, p.absent, p.silent);
    for (auto* const nodes : {&p.absent, &p.silent})
      std::erase_if(*nodes, [this](int node) { return !is_rank(node); });
    list.push_back(std::move(p));
  }
  return list;
}

std::string Session::waiting_text(const Run& run) const {
  if (run.kind == Run::Kind::send && !run.begun) return "the receiver has not asked for it";
  if (run.kind == Run::Kind::receive && !run.begun) return "no such message was sent";
  if (run.waits_for_earlier) {
    const Run* const earlier = earliest_before(run);
    if (earlier != nullptr)
      return fmt::format("{} #{}, which was called before it, has not ended here",
                         to_string(earlier->op.signature), earlier->id & ~kMessageBit);
  }
  std::vector<int> absent_ranks;
  std::vector<int> silent_ranks;
  find_missing(run, absent_ranks, silent_ranks);
  std::vector<std::string> absent;
  std::vector<std::string> silent;
  for (const int r : absent_ranks) absent.push_back(who(r));
  for (const int r : silent_ranks) silent.push_back(who(r));
  std::string text;
  if (!absent.empty()) text = fmt::format("{} not started it", fmt::join(absent, ", "));
  if (!absent.empty()) text.replace(text.rfind(" not"), 4, absent.size() > 1 ? " have not" : " has not");
  if (!silent.empty())
    text += fmt::format("{}data from {} {} missing", text.empty() ? "" : "; ", fmt::join(silent, ", "),
                        silent.size() > 1 ? "are" : "is");
  return text.empty() ? "its own data could not be sent" : text;
}

void Session::mismatch(Run& run, int from, const wire::Signature& theirs) {
  const bool same_call = calls_the_same(run, from, theirs);
  // Who only helps calls nothing itself, and does not know who has: the ranks are to find it out, each of
  // which hears what is called here.
  if (!same_call && !(is_rank(self_) && is_rank(from))) {
    if (std::exchange(run.disputed, true)) return;
    for (int r = 0; r < ranks_; ++r)
      if (r != self_ && !gone_[static_cast<std::size_t>(r)])
        post(r, encode(call(run, r), wire::Announce{false, run.unplanned}), kUrgent);
    return;
  }
  wire::Signature ours = run.op.signature;
  ours.count = run.expected(from);
  const auto called = [&](const wire::Signature& s) {
    return same_call ? fmt::format("{} by plan {:08x}", to_string(s), s.plan) : to_string(s);
  };
  fail(run, ErrorCode::mismatch,
       fmt::format("ranks disagree: {} calls {}, {} calls {}", who(self_), called(ours), who(from),
                   called(theirs)));
}

void Session::fail(Run& run, ErrorCode code, const std::string& reason) {
  run.failing = true;
  const std::string text = context(run) + ": " + reason;
  const std::string sent = text.substr(0, kMaxText);
  const wire::Failure failure{code, run.kind == Run::Kind::receive, static_cast<std::uint32_t>(sent.size())};
  const wire::Header h = encode(call(run, self_), failure);
  if (run.kind == Run::Kind::collective) {
    // Who helps elsewhere is not known here, where the plan is another one, or not yet known.
    for (int node = 0; node < nodes(); ++node)
      if (node != self_ && !gone_[static_cast<std::size_t>(node)]) outbox_.send_text(node, h, sent);
  } else if (run.peer >= 0 && !gone_[static_cast<std::size_t>(run.peer)]) {
    outbox_.send_text(run.peer, h, sent);
  }
  if (run.kind == Run::Kind::receive) mailbox_.withdraw(run.id);
  const std::uint64_t id = run.id;
  outbox_.cancel(id);
  finish(id, {false, code, text, -1});
}

void Session::on_failure_frame(int from, const wire::Header& h, const std::byte* payload) {
  const wire::Failure failure = wire::failure_of(h);
  const ErrorCode code = failure.code;
  const std::string text(reinterpret_cast<const char*>(payload), failure.text_bytes);
  std::uint64_t id = h.sequence;
  if ((id & kMessageBit) != 0 && !failure.to_sender) {
    const auto it = incoming_.find({from, id});
    if (it == incoming_.end()) {
      mailbox_.retract(from, id);
      return;
    }
    id = it->second;
  }
  if (serve_ && find(id) == nullptr) {
    take_early(id);
    remember_end(id);
    return;
  }
  if ((id & kMessageBit) == 0 && id >= next_) {
    if (doomed_.size() < kMaxDoomed) doomed_.emplace(id, Outcome{false, code, text, -1});
    return;
  }
  Run* run = find(id);
  if (run == nullptr) return;
  run->failing = true;
  outbox_.cancel(id);
  // The text begins with the call of whoever noticed, which need not be this rank's.
  const bool same_call =
      run->kind == Run::Kind::collective && text.starts_with(to_string(run->op.signature) + " #");
  const std::string own = same_call ? text : context(*run) + ": " + text;
  finish(id, {false, code, own, -1});
}

void Session::on_group_frame(int from, const wire::Header& h, const std::byte* payload) {
  if (h.type == wire::FrameType::leave) {
    on_peer_gone(from, std::nullopt, {});
    return;
  }
  const wire::GroupFailure failure = wire::group_failure_of(h);
  const std::string text(reinterpret_cast<const char*>(payload), failure.text_bytes);
  // Who only helps fails alone: ranks go on without it, and tell each other what else has happened. Its text
  // says whose fault it was.
  if (!is_rank(from)) {
    on_helper_lost(from, failure.code, text);
    return;
  }
  // Passed on: where a link is cut, not everybody hears the one who noticed.
  if (!broken_ && !serve_) tell_group(failure.code, text, from);
  break_group(failure.code, text);
}

void Session::break_group(ErrorCode code, const std::string& text) {
  if (broken_) return;
  broken_ = Outcome{false, code, text, -1};
  early_.clear();
  while (!runs_.empty()) {
    Run& run = *runs_.begin()->second;
    run.failing = true;
    const std::uint64_t id = run.id;
    const std::string full = context(run) + ": " + text;
    outbox_.cancel(id);
    finish(id, {false, code, full, -1});
  }
}

// Without a rank a group cannot go on. Without a node that helps it can, with plans that do without it.
void Session::on_peer_gone(int rank, std::optional<ErrorCode> failure, const std::string& why) {
  const std::string left = without(rank).text;
  gone_[static_cast<std::size_t>(rank)] = true;
  anybody_gone_ = true;
  mailbox_.retract(rank, std::nullopt);
  if (!is_rank(rank)) {
    on_helper_lost(rank, failure.value_or(ErrorCode::peer_failed),
                   failure ? fmt::format("{} failed: {}", who(rank), why) : left);
  } else if (failure) {
    on_damaged(rank, *failure, why);
  } else {
    fail_those_that_need(rank, ErrorCode::peer_failed, left);
    if (serve_ && rank == kPlanner) serve_early();
  }
}

void Session::on_helper_lost(int node, ErrorCode code, const std::string& text) {
  gone_[static_cast<std::size_t>(node)] = true;
  anybody_gone_ = true;
  lost_.try_emplace(node, Outcome{false, code, text, -1});
  fail_those_that_need(node, loss_of(node).code, loss_of(node).text);
}

// What becomes of calls that need somebody who is gone.
Outcome Session::without(int node) const {
  const auto lost = lost_.find(node);
  return lost != lost_.end() ? lost->second
                             : Outcome{false, ErrorCode::peer_failed, who(node) + " has left the group", -1};
}

void Session::fail_those_that_need(int rank, ErrorCode code, const std::string& text) {
  if (broken_) return;
  std::vector<std::uint64_t> lost;
  for (const auto& [id, run] : runs_) {
    bool needed = (run->peer < 0 ? run->source : run->peer) == rank;
    if (run->kind == Run::Kind::collective)
      needed = !is_rank(rank)                ? concerns(*run, rank)
               : run->unplanned              ? true
               : (run->gated && !run->begun) ? !run->agreed[static_cast<std::size_t>(rank)]
                                             : run->transfer->depends_on(rank);
    if (needed) lost.push_back(id);
  }
  for (const std::uint64_t id : lost)
    if (Run* run = find(id); run != nullptr) fail(*run, code, text);
}

// A rank may announce a collective and leave before the others have begun it, or do its part in one way when
// the others then take another: whether more was needed of it shows later.
void Session::fail_if_left(std::uint64_t id) {
  if (!anybody_gone_) return;
  Run* const run = find(id);
  if (run == nullptr || run->failing || !run->begun) return;
  for (int r = 0; r < static_cast<int>(gone_.size()); ++r) {
    if (!gone_[static_cast<std::size_t>(r)] || !run->transfer->depends_on(r)) continue;
    fail(*run, ErrorCode::peer_failed, who(r) + " has left the group");
    return;
  }
}

void Session::on_damaged(int rank, ErrorCode code, const std::string& why) {
  if (broken_) return;
  const std::string text = who(rank) + " failed: " + why;
  // Where a link is cut, each side takes the other for dead: the others hear whose view this is.
  tell_group(code, fmt::format("{} (noticed by {})", text, who(self_)), self_);
  break_group(code, text);
}

void Session::tell_group(ErrorCode code, const std::string& text, int except) {
  const std::string told = text.substr(0, kMaxText);
  const wire::Header h = encode(wire::GroupFailure{id_, code, static_cast<std::uint32_t>(told.size())});
  for (int r = 0; r < nodes(); ++r)
    if (r != self_ && r != except && !gone_[static_cast<std::size_t>(r)]) outbox_.send_text(r, h, told);
}

void Session::close() {
  break_group(ErrorCode::aborted, "the group was closed on this rank");
}

void Session::leave(int rank) {
  if (broken_ || rank == self_ || gone_[static_cast<std::size_t>(rank)]) return;
  post(rank, encode(wire::Leave{id_}), 0);
}

void Session::abort(const std::string& why) {
  if (broken_) return;
  const std::string text = fmt::format("{} aborted the group{}{}", who(self_), why.empty() ? "" : ": ", why);
  tell_group(ErrorCode::aborted, text, self_);
  break_group(ErrorCode::aborted, text);
}

void Session::ask_all(Run& run) {
  run.asked = true;
  // Who asks has started, which this rank has not while it waits for its plan.
  run.answered.assign(gone_.size(), run.unplanned);
  if (run.unplanned) {
    for (const int r : planners_) run.answered[static_cast<std::size_t>(r)] = false;
    return;
  }
  for (int r = 0; r < nodes(); ++r) {
    if (r == self_ || gone_[static_cast<std::size_t>(r)] || !concerns(run, r)) continue;
    post(r, encode(call(run, r), wire::Announce{true}), kUrgent);
  }
}

// Whom this rank waits for itself may only wait for another one: who does not even answer comes first.
std::string Session::timeout_text(const Run& run) const {
  std::vector<std::string> absent;
  std::vector<std::string> silent;
  for (std::size_t r = 0; run.asked && r < gone_.size(); ++r)
    if (static_cast<int>(r) != self_ && !run.answered[r] && concerns(run, static_cast<int>(r)))
      (started_[r] > run.id ? silent : absent).push_back(who(static_cast<int>(r)));
  if (absent.empty() && silent.empty()) return waiting_text(run);
  std::string text;
  if (!absent.empty())
    text = fmt::format("{} {} not started it", fmt::join(absent, ", "), absent.size() > 1 ? "have" : "has");
  if (!silent.empty())
    text += fmt::format("{}{} {} not answer", text.empty() ? "" : "; ", fmt::join(silent, ", "),
                        silent.size() > 1 ? "do" : "does");
  return text;
}

void Session::on_time(std::int64_t now_ns) {
  std::vector<std::uint64_t> late;
  std::vector<std::uint64_t> due;
  for (const auto& [id, run] : runs_) {
    if (run->look_ns <= now_ns)
      due.push_back(id);
    else if (run->look_ns != kNoTime)
      outbox_.look_at(run->look_ns);
    if (run->op.question_ns > 0 && !run->asked && run->op.question_ns <= now_ns) ask_all(*run);
    if (run->op.deadline_ns <= now_ns) late.push_back(id);
  }
  tell_time(due, now_ns);
  std::sort(late.begin(), late.end());
  for (const std::uint64_t id : late)
    if (Run* run = find(id); run != nullptr)
      fail(*run, ErrorCode::timeout, "timed out: " + timeout_text(*run));
}

void Session::tell_time(const std::vector<std::uint64_t>& runs, std::int64_t now_ns) {
  for (const std::uint64_t id : runs)
    if (Run* run = find(id); run != nullptr && run->begun) {
      Acting acting(*this, *run);
      run->look_ns = kNoTime;
      run->transfer->on_time(now_ns, acting);
      settle(*run);
      fail_if_left(id);
    }
}

void Session::look_again(std::int64_t now_ns) {
  std::vector<std::uint64_t> begun;
  for (const auto& [id, run] : runs_)
    if (run->begun) begun.push_back(id);
  tell_time(begun, now_ns);
}

}  // namespace talweg::protocol
