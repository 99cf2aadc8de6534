#include "live/either/either_link.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace talweg::live {

namespace {

constexpr std::int64_t kChooseEveryNs = 50'000'000;
constexpr std::int64_t kLookNs = 1'000'000;  // whether everything has arrived, while a change waits for it

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

UdpLinkOptions that_may_be_blocked(UdpLinkOptions options) {
  options.may_be_blocked = true;
  return options;
}

}  // namespace

Place EitherLink::Side::place(int peer, const wire::Header& header) {
  either.comes_by(way);
  return either.gone() ? Place{} : either.handler_.place(peer, header);
}

void EitherLink::Side::on_frame(int peer, const wire::Header& header, const std::byte* payload) {
  either.comes_by(way);
  if (!either.gone()) either.handler_.on_frame(peer, header, payload);
}

void EitherLink::Side::on_sent(std::uint32_t group, const protocol::Token& token) {
  either.handler_.on_sent(group, token);
}

// After a goodbye on one way there may still be data on the other.
void EitherLink::Side::on_peer_gone([[maybe_unused]] int peer, std::optional<ErrorCode> failure,
                                    const std::string& why) {
  if (either.gone() || either.closing_) return;
  Link& rest = either.link(way == Way::tcp ? Way::datagrams : Way::tcp);
  if (!failure && !rest.gone()) return;
  if (!rest.gone()) either.drain(rest);
  if (either.gone()) return;
  either.end(failure, why);
  either.tcp_.abandon();
  either.datagrams_.abandon();
  either.loop_.unwatch(either.handle_);
  // What waits counts as sent, as what is sent from now on does.
  while (!failure && !either.held_.empty()) {
    const OutFrame frame = either.held_.pop();
    if (!frame.reported) either.handler_.on_sent(frame.header.group, frame.token);
  }
}

EitherLink::EitherLink(Connection connection, int own, const TcpOptions& tcp, const UdpLinkOptions& datagrams,
                       EventLoop& loop, FrameHandler& handler)
    : Link(connection.rank, handler),
      loop_(loop),
      sides_{{*this, Way::tcp}, {*this, Way::datagrams}},
      datagrams_(for_datagrams(connection, last_of(connection.streams)), own, that_may_be_blocked(datagrams),
                 loop, sides_[1]),
      tcp_(for_tcp(connection, std::move(connection.streams)), tcp, loop, sides_[0]),
      timer_(check(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "creating a timer")) {
  handle_ = loop_.watch(timer_.get(), *this, 0);
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
  if (now - chosen_ns_ >= kChooseEveryNs) choose(now);
  if (next_) try_turn(now);
  if (!gone() && !tcp_.gone()) tcp_.flush();
  if (!gone() && !datagrams_.gone()) datagrams_.flush();
}

void EitherLink::choose(std::int64_t now_ns) {
  chosen_ns_ = now_ns;
  if (kept_ || next_ || tcp_.gone() || datagrams_.gone()) return;
  const Way way = choice_.look(tcp_.measured(), datagrams_.measured(), datagrams_.passes(), now_ns);
  if (way != way_) turn(way, now_ns);
}

void EitherLink::turn(Way way, std::int64_t now_ns) {
  if (next_) release(way_);
  if (way == way_) return;
  next_ = way;
  next_since_ns_ = now_ns;
  try_turn(now_ns);
  if (next_) arm(true);
}

bool EitherLink::arrived(Way way) const {
  return way == Way::tcp ? tcp_.all_arrived() : !datagrams_.unsent();
}

void EitherLink::try_turn(std::int64_t now_ns) {
  if (tcp_.gone() || datagrams_.gone() || (now_ns - next_since_ns_ > kPatienceNs && !kept_))
    release(way_);
  else if (arrived(way_))
    release(*next_);
}

// All that was held back goes by `way`, and what follows.
void EitherLink::release(Way way) {
  if (way != std::exchange(way_, way)) ++turns_;
  next_.reset();
  arm(false);
  Link& by = link(way);
  while (!held_.empty()) {
    OutFrame frame = held_.pop();
    if (!by.gone())
      by.send(std::move(frame));
    else if (!frame.reported)
      handler_.on_sent(frame.header.group, frame.token);
  }
}

void EitherLink::arm(bool on) {
  itimerspec when{};
  if (on) when.it_value.tv_nsec = when.it_interval.tv_nsec = kLookNs;
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

bool EitherLink::on_ready([[maybe_unused]] std::size_t which, bool readable, [[maybe_unused]] bool writable) {
  if (gone() || !readable) return false;
  std::uint64_t times = 0;
  [[maybe_unused]] const auto n = ::read(timer_.get(), &times, sizeof times);
  flush();
  return !next_;
}

// What has come on the other way was sent before.
void EitherLink::comes_by(Way way) {
  if (catching_up_ || way == came_by_) return;
  drain(link(came_by_));
  came_by_ = way;
}

void EitherLink::drain(Link& link) {
  const bool before = std::exchange(catching_up_, true);
  if (&link == &tcp_)
    tcp_.drain();
  else
    datagrams_.drain();
  catching_up_ = before;
}

void EitherLink::check_host() {
  if (!gone() && !tcp_.gone()) tcp_.check_host();
  if (!gone() && !datagrams_.gone()) datagrams_.check_host();
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
  const bool in_datagrams = gone() || datagrams_.gone() || datagrams_.part();
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
          .acked_bytes = a.acked_bytes + b.acked_bytes,
          .resent_bytes = a.resent_bytes + b.resent_bytes,
          .busy_seconds = a.busy_seconds + b.busy_seconds,
          .datagrams = way_ == Way::datagrams};
}

}  // namespace talweg::live
