// Everything that can go wrong, and who is told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "protocol/session.h"
#include "protocol/session_run.h"

namespace talweg::protocol {

namespace {
constexpr std::size_t kMaxText = 2000;  // of a failure's reason on the wire
constexpr std::size_t kMaxDoomed =
    1024;  // failures remembered for collectives not started; older deadlines catch the rest
}  // namespace

std::string Session::who(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::string Session::context(const Run& run) const {
  const std::string op = to_string(run.op.signature);
  if (run.kind == Run::Kind::collective) return fmt::format("{} #{} on {}", op, run.id, who(rank_));
  const bool sends = run.kind == Run::Kind::send;
  return fmt::format("{} {} {} tag {} on {}", op, sends ? "to" : "from",
                     run.peer < 0 ? std::string("any rank") : who(run.peer), run.tag, who(rank_));
}

std::string Session::waiting_text(const Run& run) const {
  std::vector<std::string> absent;
  std::vector<std::string> silent;
  if (run.kind == Run::Kind::collective) {
    const auto classify = [&](int r) {
      (started_[static_cast<std::size_t>(r)] > run.id ? silent : absent).push_back(who(r));
    };
    if (run.gated && !run.run.begun()) {
      for (int r = 0; r < static_cast<int>(hosts_.size()); ++r)
        if (r != rank_ && !run.agreed[static_cast<std::size_t>(r)]) classify(r);
    } else {
      for (const NodeId node : run.run.waiting_for()) classify(node);
    }
  } else if (run.run.begun()) {
    silent.push_back(who(run.peer));
  } else {
    return run.kind == Run::Kind::send ? "the receiver has not asked for it" : "no such message was sent";
  }
  std::string text;
  if (!absent.empty()) text = fmt::format("{} not started it", fmt::join(absent, ", "));
  if (!absent.empty()) text.replace(text.rfind(" not"), 4, absent.size() > 1 ? " have not" : " has not");
  if (!silent.empty())
    text += fmt::format("{}data from {} {} missing", text.empty() ? "" : "; ", fmt::join(silent, ", "),
                        silent.size() > 1 ? "are" : "is");
  return text.empty() ? "its own data could not be sent" : text;
}

void Session::mismatch(Run& run, int from, const wire::Header& h) {
  wire::Signature ours = run.op.signature;
  ours.count = run.expected(from);
  std::string reason = fmt::format("ranks disagree: {} calls {}, {} calls {}", who(rank_), to_string(ours),
                                   who(from), to_string(wire::signature_of(h)));
  fail(run, ErrorCode::mismatch, reason);
}

void Session::fail(Run& run, ErrorCode code, const std::string& reason) {
  run.failing = true;
  const std::string text = context(run) + ": " + reason;
  wire::Header h = header(run, wire::FrameType::failure, rank_);
  h.flags = static_cast<std::uint32_t>(code) << 8;
  const std::string sent = text.substr(0, kMaxText);
  h.length = static_cast<std::uint32_t>(sent.size());
  if (run.kind == Run::Kind::collective) {
    for (int r = 0; r < static_cast<int>(hosts_.size()); ++r)
      if (r != rank_ && !gone_[static_cast<std::size_t>(r)]) outbox_.send_text(r, h, sent);
  } else if (run.peer >= 0 && !gone_[static_cast<std::size_t>(run.peer)]) {
    if (run.kind == Run::Kind::receive) h.flags |= kToSender;
    outbox_.send_text(run.peer, h, sent);
  }
  if (run.kind == Run::Kind::receive) mailbox_.withdraw(run.id);
  const std::uint64_t id = run.id;
  outbox_.cancel(id);
  finish(id, {false, code, text, -1});
}

void Session::on_failure_frame(int from, const wire::Header& h, const std::byte* payload) {
  const auto raw = h.flags >> 8;
  const auto code = raw <= static_cast<std::uint32_t>(ErrorCode::corrupted) ? static_cast<ErrorCode>(raw)
                                                                            : ErrorCode::aborted;
  const std::string text(reinterpret_cast<const char*>(payload), h.length);
  if (h.sequence == wire::kWholeGroup) {
    break_group(code, text);
    return;
  }
  std::uint64_t id = h.sequence;
  if ((id & kMessageBit) != 0 && (h.flags & kToSender) == 0) {
    const auto it = incoming_.find({from, id});
    if (it == incoming_.end()) {
      mailbox_.retract(from, id);
      return;
    }
    id = it->second;
  }
  if ((id & kMessageBit) == 0 && id >= next_) {
    if (doomed_.size() < kMaxDoomed) doomed_.emplace(id, Outcome{false, code, text, -1});
    return;
  }
  Run* run = find(id);
  if (run == nullptr) return;
  run->failing = true;
  outbox_.cancel(id);
  finish(id, {false, code, text, -1});
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

void Session::on_peer_gone(int rank, bool orderly, const std::string& why) {
  gone_[static_cast<std::size_t>(rank)] = true;
  mailbox_.retract(rank, std::nullopt);
  if (broken_) return;
  if (!orderly) {
    on_damaged(rank, ErrorCode::peer_failed, why);
    return;
  }
  std::vector<std::uint64_t> lost;
  for (const auto& [id, run] : runs_) {
    bool needed = run->peer == rank;
    if (run->kind == Run::Kind::collective) {
      const auto waiting = run->run.waiting_for();
      needed = (run->gated && !run->run.begun())
                   ? !run->agreed[static_cast<std::size_t>(rank)]
                   : std::find(waiting.begin(), waiting.end(), rank) != waiting.end();
    }
    if (needed) lost.push_back(id);
  }
  for (const std::uint64_t id : lost)
    if (Run* run = find(id); run != nullptr)
      fail(*run, ErrorCode::peer_failed, who(rank) + " has left the group");
}

void Session::on_damaged(int rank, ErrorCode code, const std::string& why) {
  if (broken_) return;
  const std::string text = who(rank) + " failed: " + why;
  wire::Header h;
  h.type = wire::FrameType::failure;
  h.group = id_;
  h.sequence = wire::kWholeGroup;
  h.flags = static_cast<std::uint32_t>(code) << 8;
  h.length = static_cast<std::uint32_t>(std::min(text.size(), kMaxText));
  for (int r = 0; r < static_cast<int>(hosts_.size()); ++r)
    if (r != rank_ && !gone_[static_cast<std::size_t>(r)]) outbox_.send_text(r, h, text.substr(0, kMaxText));
  break_group(code, text);
}

void Session::close() {
  break_group(ErrorCode::aborted, "the group was closed on this rank");
}

void Session::abort(const std::string& why) {
  if (broken_) return;
  const std::string text = fmt::format("{} aborted the group{}{}", who(rank_), why.empty() ? "" : ": ", why);
  wire::Header h;
  h.type = wire::FrameType::failure;
  h.group = id_;
  h.sequence = wire::kWholeGroup;
  h.flags = static_cast<std::uint32_t>(ErrorCode::aborted) << 8;
  h.length = static_cast<std::uint32_t>(std::min(text.size(), kMaxText));
  for (int r = 0; r < static_cast<int>(hosts_.size()); ++r)
    if (r != rank_ && !gone_[static_cast<std::size_t>(r)]) outbox_.send_text(r, h, text.substr(0, kMaxText));
  break_group(ErrorCode::aborted, text);
}

void Session::on_time(std::int64_t now_ns) {
  std::vector<std::uint64_t> late;
  for (const auto& [id, run] : runs_)
    if (run->op.deadline_ns <= now_ns) late.push_back(id);
  std::sort(late.begin(), late.end());
  for (const std::uint64_t id : late)
    if (Run* run = find(id); run != nullptr)
      fail(*run, ErrorCode::timeout, "timed out: " + waiting_text(*run));
}

}  // namespace talweg::protocol
