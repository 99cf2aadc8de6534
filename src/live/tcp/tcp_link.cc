#include "live/tcp/tcp_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "live/tcp/tcp_traffic.h"

namespace talweg::live {

namespace {
// A machine that takes no new connections, as behind some firewalls, is heard in silent times only by what
// the kernel asks over those that it has: often enough that one question may get lost.
int keep_alive_s(std::int64_t host_timeout_ns) {
  return static_cast<int>(std::clamp<std::int64_t>(host_timeout_ns * 2 / 5 / 1'000'000'000, 1, 60));
}
}  // namespace

TcpLink::TcpLink(Connection connection, const TcpOptions& options, EventLoop& loop, FrameHandler& handler)
    : Link(connection.rank, handler),
      host_timeout_ns_(options.host_timeout_ns),
      fence_(connection.streams.size()) {
  for (std::size_t s = 0; s < connection.streams.size(); ++s) {
    keep_alive(connection.streams[s], keep_alive_s(host_timeout_ns_));
    streams_.emplace_back(std::move(connection.streams[s]), peer_, options.stream, handler,
                          connection.secrets.empty() ? nullptr : &connection.secrets[s]);
    streams_.back().join(fence_, s);
    streams_.back().watch(loop, *this, s);
  }
}

bool TcpLink::send(OutFrame frame) {
  const bool owned = frame.reported;
  if ((frame.header.flags & wire::kBehindAll) != 0)
    for (std::size_t s = 1; s < streams_.size(); ++s)
      streams_[(frame.header.tree + s) % streams_.size()].push(frame);
  Stream& own = streams_[frame.header.tree % streams_.size()];
  own.push(std::move(frame));
  return owned;
}

void TcpLink::flush() {
  for (Stream& stream : streams_) {
    if (gone()) return;
    if (!stream.idle()) stream.flush();
  }
}

bool TcpLink::on_ready(std::size_t which, bool readable, bool writable) {
  const bool any = streams_[which].on_ready(readable, writable);
  settle();
  return any;
}

// After a goodbye on one stream there may still be data on the others.
void TcpLink::settle() {
  if (gone()) return;
  bool open = false;
  for (Stream& stream : streams_) {
    open = open || stream.open();
    if (stream.open()) continue;
    if (const Stream::End end = *stream.end(); end.failure) {
      lose(end.failure, end.why);
      return;
    }
    stream.close();
  }
  if (open) return;
  lose(std::nullopt, {});
  // What waits for it counts as sent, as what is sent to it from now on does: an operation that is not told
  // to fail would else wait for its deadline.
  for (Stream& stream : streams_) stream.forget();
}

void TcpLink::lose(std::optional<ErrorCode> failure, const std::string& why) {
  for (Stream& stream : streams_) stream.close();
  end(failure, why);
}

void TcpLink::check_host() {
  std::uint64_t answers = 0;
  int open = -1;
  for (const Stream& stream : streams_)
    if (stream.open()) answers += tcp_answers(open = stream.fd());
  if (answers > 0 && pulse_.lost(open, answers, host_timeout_ns_))
    lose(ErrorCode::peer_failed,
         fmt::format("its host has not answered for {:g} s", static_cast<double>(host_timeout_ns_) * 1e-9));
}

void TcpLink::pace(double bytes_per_second) {
  for (Stream& stream : streams_) stream.pace(bytes_per_second);
}

void TcpLink::cancel(std::uint32_t group, std::uint64_t run) {
  for (Stream& stream : streams_) stream.cancel(group, run);
}

bool TcpLink::unsent() const {
  return !gone() && std::ranges::any_of(streams_, [](const Stream& s) { return !s.idle(); });
}

bool TcpLink::part() {
  bool parted = true;
  for (Stream& stream : streams_) parted = (gone() || (stream.say_goodbye() && stream.linger())) && parted;
  return parted;
}

TcpTraffic TcpLink::traffic(std::size_t stream) const {
  return tcp_traffic(streams_[stream].fd());
}

void TcpLink::drain() {
  for (Stream& stream : streams_)
    while (stream.open() && stream.receive()) {
    }
  settle();
}

LinkStatistics TcpLink::statistics() const {
  LinkStatistics sum;
  for (const Stream& stream : streams_) {
    sum.bytes_sent += stream.bytes_sent();
    sum.bytes_received += stream.bytes_received();
  }
  return sum;
}

PeerStatistics TcpLink::measured() const {
  PeerStatistics sum{.rank = peer_};
  for (const Stream& stream : streams_) {
    const TcpTraffic traffic = tcp_traffic(stream.fd());
    sum.retransmits += traffic.retransmits;
    sum.round_trip_us = std::max(sum.round_trip_us, traffic.round_trip_us);
    if (sum.least_round_trip_us == 0 ||
        (traffic.least_round_trip_us > 0 && traffic.least_round_trip_us < sum.least_round_trip_us))
      sum.least_round_trip_us = traffic.least_round_trip_us;
    sum.acked_bytes += traffic.acked_bytes;
    sum.resent_bytes += traffic.resent_bytes;
    sum.busy_seconds = std::max(sum.busy_seconds, traffic.busy_seconds);
  }
  return sum;
}

}  // namespace talweg::live
