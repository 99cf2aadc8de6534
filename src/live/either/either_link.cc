#include "live/either/either_link.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"

namespace talweg::live {

namespace {

// The run of answers to questions of turns: no run has this number.
constexpr std::uint64_t kAnswers = std::numeric_limits<std::uint64_t>::max();

Connection for_tcp(const Connection& all, std::vector<FileDescriptor> streams) {
  Connection c;
  c.rank = all.rank;
  c.streams = std::move(streams);
  c.secrets.assign(all.secrets.begin(), all.secrets.end() - (all.secrets.empty() ? 0 : 1));
  return c;
}

Connection for_datagrams(const Connection& all, FileDescriptor lifeline) {
  Connection c;
  c.rank = all.rank;
  c.streams.push_back(std::move(lifeline));
  if (!all.secrets.empty()) c.secrets.push_back(all.secrets.back());
  return c;
}

FileDescriptor last_of(std::vector<FileDescriptor>& streams) {
  FileDescriptor last = std::move(streams.back());
  streams.pop_back();
  return last;
}

}  // namespace

Place EitherLink::Side::place(int peer, const wire::Header& header) {
  either.comes_by(way);
  return either.gone() ? Place{} : either.handler_.place(peer, header);
}

void EitherLink::Side::on_frame(int peer, const wire::Header& header, const std::byte* payload) {
  if (header.type == wire::FrameType::turn || header.type == wire::FrameType::taken) {
    if (way == Way::tcp) either.on_turn_frame(header);
    return;
  }
  either.comes_by(way);
  if (!either.gone()) either.handler_.on_frame(peer, header, payload);
}

void EitherLink::Side::on_sent(std::uint32_t group, const protocol::Token& token) {
  if (token.run == kAnswers) return either.on_answered();
  either.handler_.on_sent(group, token);
}

void EitherLink::Side::on_peer_gone([[maybe_unused]] int peer, std::optional<ErrorCode> failure,
                                    const std::string& why) {
  if (either.closing_ || either.gone()) return;
  either.ends_[index(way)] = {failure, why};
  if (way == Way::datagrams && failure == ErrorCode::system) {  // none can be sent from here
    Logger(either.own_).log(LogLevel::info, "net", "{}", why);
    either.found_silent(now_ns());
  }
  // What is being handed over now comes first.
  if (either.draining_)
    either.look_again(1);
  else
    either.settle();
}

// What has ended, and what follows for the whole.
void EitherLink::settle() {
  if (gone()) return;
  const std::optional<End>&tcp = ends_[index(Way::tcp)], &datagrams = ends_[index(Way::datagrams)];
  if (tcp && !datagrams) drain(Way::datagrams);
  if (datagrams && !tcp) drain(Way::tcp);
  if (gone()) return;
  if (tcp && tcp->failure) return finish(*tcp);
  if (datagrams && datagrams->failure && *datagrams->failure != ErrorCode::peer_failed &&
      *datagrams->failure != ErrorCode::system)
    return finish(*datagrams);
  // Their lifeline has ended with the process at the other end, or with its link: TCP will say how. Or none
  // can be sent: TCP is left.
  if (!tcp || !datagrams) return;
  if (datagrams->failure && came_by_ == Way::datagrams) return finish(*datagrams);
  finish({});
}

void EitherLink::finish(const End& as) {
  end(as.failure, as.why);
  tcp_.abandon();
  datagrams_.abandon();
  loop_.unwatch(handle_);
  // What waits counts as sent, as what is sent from now on does.
  while (!as.failure && !held_.empty()) {
    const OutFrame frame = held_.pop();
    if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
  }
}

EitherLink::EitherLink(Connection connection, int own, const EitherLinkOptions& options,
                       const TcpOptions& tcp, const UdpLinkOptions& datagrams, EventLoop& loop,
                       FrameHandler& handler)
    : Link(connection.rank, handler),
      own_(own),
      loop_(loop),
      sides_{{*this, Way::tcp}, {*this, Way::datagrams}},
      datagrams_(for_datagrams(connection, last_of(connection.streams)), own, datagrams, loop, sides_[1]),
      tcp_(for_tcp(connection, std::move(connection.streams)), tcp, loop, sides_[0]),
      timer_(check(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "creating a timer")),
      host_timeout_ns_(tcp.host_timeout_ns),
      choice_(options.preference),
      silent_(options.silent) {
  handle_ = loop_.watch(timer_.get(), *this, 0);
  carried_each_.resize(tcp_.streams());
  closing_ = false;
}

EitherLink::~EitherLink() {
  closing_ = true;
  loop_.unwatch(handle_);
  tcp_.abandon();
  datagrams_.abandon();
}

Link& EitherLink::link(Way way) {
  if (way == Way::tcp) return tcp_;
  return datagrams_;
}

void EitherLink::keep_to(Way way) {
  kept_ = true;
  turn(way, now_ns());
}

bool EitherLink::send(OutFrame frame) {
  if (next_) {
    const bool owned = frame.reported;
    held_.push(std::move(frame));
    return owned;
  }
  Link& by = link(way_);
  return by.gone() || by.send(std::move(frame));
}

void EitherLink::flush() {
  const std::int64_t now = now_ns();
  const bool at_once = choice_.always() && way_ == Way::tcp && !next_ && datagrams_.passes();
  if (at_once || times_.looks_for_better(now)) choose(now);
  if (next_) try_turn(now);
  if (!gone() && !tcp_.gone()) tcp_.flush();
  if (!gone() && !datagrams_.gone()) datagrams_.flush();
}

// Streams carry frames side by side: what counts is for how long any was busy.
PeerStatistics EitherLink::carried_over_tcp() {
  double busy = 0;
  for (std::size_t s = 0; s < carried_each_.size(); ++s) {
    const TcpTraffic now = tcp_.traffic(s);
    const TcpTraffic before = std::exchange(carried_each_[s], now);
    if (now.acked_bytes < before.acked_bytes) continue;  // it has been closed
    carried_.acked_bytes += now.acked_bytes - before.acked_bytes;
    carried_.resent_bytes += now.resent_bytes - before.resent_bytes;
    busy = std::max(busy, now.busy_seconds - before.busy_seconds);
  }
  carried_.busy_seconds += busy;
  return carried_;
}

// Once: it is no news when it is tried again.
void EitherLink::found_silent(std::int64_t now_ns) {
  if (!std::exchange(found_silent_, true) && silent_) silent_->add(peer_, now_ns);
}

void EitherLink::choose(std::int64_t now_ns) {
  times_.looked(now_ns);
  if (kept_ || next_ || !times_.may_turn(now_ns) || tcp_.gone() || datagrams_.gone()) return;
  const PeerStatistics over_tcp = carried_over_tcp(), in_datagrams = datagrams_.measured();
  const bool passes = datagrams_.passes();
  // A process that was stopped answers over TCP first.
  if (!passes && choice_.wants_datagrams(over_tcp) && times_.goes_long_this_way(now_ns) &&
      datagrams_.unanswered_for(TurnTimes::kAnswerNs, now_ns))
    found_silent(now_ns);
  const Way way = choice_.look(over_tcp, in_datagrams, passes, now_ns);
  if (way == way_) return times_.answered();
  if (way == Way::datagrams && datagrams_.unanswered_for(TurnTimes::kAnswerNs, now_ns)) {
    if (times_.asks(now_ns)) datagrams_.ask();
    if (times_.no_answer(now_ns)) {
      found_silent(now_ns);
      choice_.stay(way_, over_tcp, in_datagrams, now_ns);
    }
    return;
  }
  times_.answered();
  turn(way, now_ns);
}

void EitherLink::turn(Way way, std::int64_t now_ns) {
  if (next_) release(way_);
  if (way == way_) return;
  next_ = way;
  times_.begin(now_ns);
  if (way_ == Way::tcp && !tcp_.gone()) {
    OutFrame question;
    question.header = encode(wire::Turn{++asked_turn_});
    tcp_.send(std::move(question));
    if (!tcp_.gone()) tcp_.flush();
  }
  try_turn(now_ns);
  if (next_) look_again(times_.next_look_ns(now_ns));
}

bool EitherLink::taken(Way way) const {
  return way == Way::tcp ? taken_turn_ == asked_turn_ : !datagrams_.unsent();
}

// What was asked has come behind all else, and all of it has been handed over.
void EitherLink::on_turn_frame(const wire::Header& header) {
  if (header.type == wire::FrameType::taken) {
    taken_turn_ = wire::taken_of(header).number;
  } else {
    to_answer_ = wire::turn_of(header).number;
    if (!answering_) answer();
  }
  look_again(1);
}

// Who reads nothing can ask without end. So one answer at a time waits to leave; only the newest counts.
void EitherLink::answer() {
  if (gone() || tcp_.gone()) return;
  OutFrame frame;
  frame.header = encode(wire::Taken{*std::exchange(to_answer_, std::nullopt)});
  frame.priority = protocol::kUrgent;  // behind what waits here it would come too late
  frame.token.run = kAnswers;
  frame.reported = false;
  answering_ = true;
  tcp_.send(std::move(frame));
}

// It has left; another question may have come meanwhile.
void EitherLink::on_answered() {
  answering_ = false;
  if (!to_answer_) return;
  answer();
  look_again(1);
}

void EitherLink::try_turn(std::int64_t now_ns) {
  if (tcp_.gone() || datagrams_.gone()) {
    release(way_);
  } else if (taken(way_)) {
    release(*next_);
  } else if (times_.out_of_patience(now_ns) && !kept_ && (way_ == Way::tcp || datagrams_.passes())) {
    release(way_);
    choice_.stay(way_, carried_over_tcp(), datagrams_.measured(), now_ns);
    times_.put_off(now_ns);
  }
}

// All that was held back goes by `way`, and what follows.
void EitherLink::release(Way way) {
  if (way != std::exchange(way_, way)) {
    ++turns_;
    times_.turned(now_ns());
    Logger(own_).log(LogLevel::info, "net", "frames to rank {} go {} from now on", peer_,
                     way == Way::tcp ? "over TCP" : "in datagrams");
  }
  next_.reset();
  Link& by = link(way);
  while (!held_.empty()) {
    OutFrame frame = held_.pop();
    if (!by.gone())
      by.send(std::move(frame));
    else if (!frame.reported)
      handler_.on_sent(frame.header.group, frame.token);
  }
}

void EitherLink::look_again(std::int64_t in_ns) {
  itimerspec when{};
  when.it_value.tv_nsec = in_ns;
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

bool EitherLink::on_ready([[maybe_unused]] std::size_t which, bool readable, [[maybe_unused]] bool writable) {
  if (gone() || !readable) return false;
  std::uint64_t times = 0;
  [[maybe_unused]] const auto n = ::read(timer_.get(), &times, sizeof times);
  settle();
  if (gone()) return true;
  flush();
  if (!gone() && next_) look_again(times_.next_look_ns(now_ns()));
  return !next_;
}

// Not what is drained of a way because the other one has ended.
void EitherLink::comes_by(Way way) {
  if (!draining_) came_by_ = way;
}

void EitherLink::drain(Way way) {
  const bool already = std::exchange(draining_, true);
  if (way == Way::tcp && !tcp_.gone()) tcp_.drain();
  if (way == Way::datagrams && !datagrams_.gone()) datagrams_.drain();
  draining_ = already;
}

void EitherLink::check_host() {
  if (!gone() && !tcp_.gone()) tcp_.check_host();
  if (!gone() && !datagrams_.gone()) datagrams_.check_host();
  if (gone()) return;
  const std::int64_t now = now_ns();
  // Only their connection was lost: nobody brings what went that way.
  const std::optional<End>& datagrams = ends_[index(Way::datagrams)];
  if (datagrams && way_ == Way::datagrams && !ends_[index(Way::tcp)]) {
    if (lost_ns_ == 0) lost_ns_ = now;
    if (now - lost_ns_ > host_timeout_ns_) return finish(End(*datagrams));
  }
  choose(now);
  if (silent_) silent_->look(now);
}

void EitherLink::pace(double bytes_per_second) {
  if (!tcp_.gone()) tcp_.pace(bytes_per_second);
  if (!datagrams_.gone()) datagrams_.pace(bytes_per_second);
}

void EitherLink::cancel(std::uint32_t group, std::uint64_t run) {
  held_.cancel(group, run, [&](const OutFrame& frame) { handler_.on_sent(frame.header.group, frame.token); });
  tcp_.cancel(group, run);
  datagrams_.cancel(group, run);
}

bool EitherLink::unsent() const {
  return !gone() && (!held_.empty() || tcp_.unsent() || datagrams_.unsent());
}

bool EitherLink::part() {
  if (gone()) return true;
  kept_ = true;
  if (next_) release(way_);
  const bool over_tcp = tcp_.gone() || tcp_.part();
  // Where they do not pass, and nothing went that way, there is nothing to wait for.
  const bool in_datagrams =
      gone() || datagrams_.gone() || datagrams_.part() || (way_ == Way::tcp && !datagrams_.passes());
  return gone() || (over_tcp && in_datagrams);
}

LinkStatistics EitherLink::statistics() const {
  const LinkStatistics a = tcp_.statistics(), b = datagrams_.statistics();
  return {a.bytes_sent + b.bytes_sent, a.bytes_received + b.bytes_received};
}

PeerStatistics EitherLink::measured() const {
  const PeerStatistics a = tcp_.measured(), b = datagrams_.measured();
  return {.rank = peer_,
          .retransmits = a.retransmits + b.retransmits,
          .round_trip_us = way_ == Way::tcp ? a.round_trip_us : b.round_trip_us,
          .least_round_trip_us = way_ == Way::tcp ? a.least_round_trip_us : b.least_round_trip_us,
          .acked_bytes = a.acked_bytes + b.acked_bytes,
          .resent_bytes = a.resent_bytes + b.resent_bytes,
          .busy_seconds = a.busy_seconds + b.busy_seconds,
          .datagrams = way_ == Way::datagrams,
          .paths_left = b.paths_left};
}

}  // namespace talweg::live
