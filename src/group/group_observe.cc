// What a group writes down about its calls.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "group/group_impl.h"

namespace talweg::group {

void GroupImpl::note_start(Watched& call, const observe::CallNote& note) {
  observe::Observer& observer = world_->observer();
  call = {note.kind,        note.signature.op,     false, note.bytes, note.started_ns,
          note.deadline_ns, recorder_.start(note), 0};
  if (observe::Trace* trace = observer.trace()) call.trace = trace->begin(note, identity_.id);
  if (observer.should_ask(note.started_ns)) world_->ask_time(note.started_ns);
  if (const std::int64_t patience = observer.options().stall_ns; patience > 0) {
    const std::int64_t stalled_ns = note.started_ns + patience;
    if (stalled_ns < next_stall_ns_) {
      next_stall_ns_ = stalled_ns;
      world_->look_at(stalled_ns);
    }
  }
  if (log_.shows(LogLevel::trace))
    log_.log(LogLevel::trace, "call", "{} #{}: {}, {} bytes, {}",
             observe::call_name(note.kind, note.signature.op), note.sequence, to_string(note.signature),
             note.bytes, note.algorithm.data());
}

std::string GroupImpl::note_end(const Watched& call, const protocol::Outcome& outcome) {
  observe::Observer& observer = world_->observer();
  const std::int64_t now = observer.end_time();
  if (observe::Trace* trace = observer.trace()) trace->end(call.trace, call.kind, call.op, now, outcome.ok);
  if (observe::Metrics* metrics = observer.metrics()) {
    if (outcome.ok) {
      metrics->add(call.kind, call.op, call.bytes, size(), now - call.started_ns);
      if (outcome.way != protocol::SumWay::none) metrics->sum(outcome.way, call.bytes);
    } else if (!leaving_) {
      metrics->fail(call.kind, call.op, outcome.code);
    }
  }
  if (outcome.ok) {
    recorder_.end(call.ticket, now, outcome.way);
    return {};
  }
  recorder_.fail(call.ticket, now, outcome.code, outcome.text);
  return write_record(outcome, now);
}

void GroupImpl::begin_bounded(observe::CallNote::Kind kind, std::uint64_t number, const BoundedCall& call) {
  using Kind = observe::CallNote::Kind;
  const std::int64_t now = live::now_ns();
  const Collective op = kind == Kind::bounded_push   ? Collective::reduce_scatter
                        : kind == Kind::bounded_pull ? Collective::all_gather
                                                     : Collective::all_reduce;
  const wire::Signature signature{op, call.type, call.reduction, 0, static_cast<std::int64_t>(call.count), 0};
  const auto guard = world_->lock();
  Bounded& bounded = bounded_.emplace(Bounded{});
  note_start(bounded.call, {kind,
                            signature,
                            number,
                            -1,
                            0,
                            signature.count * static_cast<std::int64_t>(size_of(call.type)),
                            now,
                            now + timeout_ns({.timeout = call.timeout}),
                            {},
                            0});
  bounded.what = fmt::format("{}{} #{} on rank {} ({})", observe::call_name(kind, op),
                             to_string(signature).substr(std::string_view(name(op)).size()), number, rank(),
                             identity_.hosts[static_cast<std::size_t>(rank())]);
  bounded.waits.text = bounded.what;
}

void GroupImpl::miss_bounded(std::vector<int> silent) {
  const auto guard = world_->lock();
  protocol::Session::Pending& waits = bounded_->waits;
  waits.moving = true;
  waits.text = bounded_->what;
  for (const int r : silent)
    waits.text += fmt::format("{} rank {} ({})",
                              waits.text.size() == bounded_->what.size() ? ": data are missing from" : ",", r,
                              identity_.hosts[static_cast<std::size_t>(r)]);
  waits.silent = std::move(silent);
}

void GroupImpl::end_bounded(const LossReport& report, protocol::SumWay way) {
  const auto guard = world_->lock();
  world_->observer().bounded().add(report, identity_.members);
  if (bounded_->call.kind != observe::CallNote::Kind::bounded_pull)
    recorder_.lose(bounded_->call.ticket, report);
  protocol::Outcome outcome;
  outcome.way = way;
  note_end(bounded_->call, outcome);
  bounded_.reset();
}

std::string GroupImpl::fail_bounded(const Error& error) {
  const auto guard = world_->lock();
  const Bounded failed = *std::exchange(bounded_, std::nullopt);
  if (!failed.waits.silent.empty()) recorder_.miss(failed.call.ticket, failed.waits);
  // These sums are over with it, unless ranks disagreed: a last record, however soon after that of a call or
  // a message of theirs which has failed with it, and in which this one is still under way.
  if (session_.broken() || error.code() != ErrorCode::mismatch) recorded_.clear();
  const std::string more = note_end(failed.call, {false, error.code(), error.what()});
  return std::string_view(error.what()).find(more) == std::string_view::npos ? more : std::string();
}

// On an error. Calls that fail together are in one record; and a program that goes on failing is not slowed
// down by writing about it.
std::string GroupImpl::write_record(const protocol::Outcome& outcome, std::int64_t now_ns) {
  constexpr std::int64_t kPauseNs = 1'000'000'000;
  observe::Observer& observer = world_->observer();
  if (leaving_ || observer.options().record_dir.empty() || observer.options().recorded == 0) return {};
  if (!recorded_.empty() && now_ns - recorded_ns_ < kPauseNs) return recorded_;
  recorded_ns_ = now_ns;
  const std::string path = observer.record_path(identity_.id);
  const std::string why = observe::write_atomically(path, record(outcome.text));
  recorded_ = why.empty() ? fmt::format(" (flight record: {})", path)
                          : fmt::format(" (no flight record: cannot write {}: {})", path, why);
  if (observe::Trace* trace = observer.trace()) trace->flush();
  return recorded_;
}

void GroupImpl::note_missing() {
  for (const auto& [ticket, pending] : waiting()) recorder_.miss(ticket, pending);
}

std::vector<std::pair<std::uint64_t, protocol::Session::Pending>> GroupImpl::waiting() const {
  std::vector<std::pair<std::uint64_t, protocol::Session::Pending>> list;
  // Before any data are sent, a bounded call is an all_gather in which ranks agree on it.
  std::vector<int> absent;
  for (protocol::Session::Pending& p : session_.pending()) {
    const Watched& call = static_cast<WorkImpl*>(p.user)->watched();
    if (call.kind == observe::CallNote::Kind::collective) absent = p.absent;
    list.emplace_back(call.ticket, std::move(p));
  }
  if (bounded_) {
    list.emplace_back(bounded_->call.ticket, bounded_->waits);
    list.back().second.absent = std::move(absent);
  }
  return list;
}

std::int64_t GroupImpl::on_time(std::int64_t now_ns) {
  if (now_ns >= next_stall_ns_) warn_of_stalls(now_ns);
  if (now_ns >= session_.next_deadline_ns()) note_missing();
  session_.on_time(now_ns);
  plan_held();
  return std::min(session_.next_deadline_ns(), next_stall_ns_);
}

// One line for all calls that wait for the same ranks: of the oldest.
void GroupImpl::warn_of_stalls(std::int64_t now_ns) {
  const std::int64_t patience = world_->observer().options().stall_ns;
  next_stall_ns_ = std::numeric_limits<std::int64_t>::max();
  std::map<std::pair<std::vector<int>, std::vector<int>>, int> waiting;  // for the same: calls
  const std::vector<protocol::Session::Pending> pending = session_.pending();
  for (const auto& p : pending) ++waiting[{p.absent, p.silent}];
  for (const auto& p : pending) {
    Watched& call = static_cast<WorkImpl*>(p.user)->watched();
    int& calls = waiting[{p.absent, p.silent}];
    if (!call.stalled && now_ns - call.started_ns < patience) {
      next_stall_ns_ = std::min(next_stall_ns_, call.started_ns + patience);
      continue;
    }
    const bool said = std::exchange(call.stalled, true);
    if (observe::Metrics* metrics = world_->observer().metrics(); metrics != nullptr && !said)
      metrics->stall();
    const double left = static_cast<double>(call.deadline_ns - now_ns) * 1e-9;
    if (!said && calls > 0)
      log_.log(LogLevel::warn, "stall", "{} (for {:.0f} s; {}{})", p.text,
               static_cast<double>(now_ns - call.started_ns) * 1e-9,
               left > 0 ? fmt::format("given up in {:.0f} s", left) : "its time is over",
               calls == 1 ? "" : fmt::format("; and {} more call{}", calls - 1, calls == 2 ? "" : "s"));
    calls = 0;
  }
  // Of many calls that were started one after the other, not one at a time.
  if (next_stall_ns_ < now_ns + patience / 8) next_stall_ns_ = now_ns + patience / 8;
}

std::string GroupImpl::record(const std::string& reason) const {
  const observe::Observer& observer = world_->observer();
  observe::RecordHead head{observer.options().job, identity_.id,    identity_.rank,
                           identity_.members,      identity_.hosts, reason,
                           live::now_ns(),         live::wall_ns(), observer.clock()};
  return to_json(head, recorder_, waiting());
}

std::string GroupImpl::flight_record() const {
  const auto guard = world_->lock();
  return record("asked for by the program");
}

void GroupImpl::add_lag(std::vector<double>& lag, std::int64_t now_ns) const {
  for (const protocol::Session::Pending& p : session_.pending()) {
    const Watched& call = static_cast<WorkImpl*>(p.user)->watched();
    if (call.kind != observe::CallNote::Kind::collective) continue;
    for (const int r : p.absent) {
      double& most = lag[static_cast<std::size_t>(identity_.members[static_cast<std::size_t>(r)])];
      most = std::max(most, static_cast<double>(now_ns - call.started_ns) * 1e-9);
    }
  }
}

void GroupImpl::add_traffic(observe::SwitchTraffic& traffic) const {
  for (const auto& streams : {switch_, bounded_switch_, rows_streams_}) {
    if (streams == nullptr) continue;
    traffic.any = true;
    const auto [sent, received] = streams->traffic();
    traffic.sent_bytes += sent;
    traffic.received_bytes += received;
  }
}

}  // namespace talweg::group
