#include "live/udp/udp_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "live/tcp/tcp_traffic.h"

namespace talweg::live {

namespace {

constexpr std::uint32_t kIntroductionMagic = 0x50445554;  // "TUDP"
constexpr std::uint8_t kIntroductionVersion = 3;
constexpr std::byte kMet{'M'};  // behind an introduction: the other one has been read

// Numbers of the handles.
constexpr std::size_t kLifeline = 0;
constexpr std::size_t kDatagrams = 1;
constexpr std::size_t kTimer = 2;
constexpr std::size_t kMorePaths = 3;  // and from there on

// Another frame is taken when the flow holds fewer bytes that have not left: they cannot be overtaken any
// more.
constexpr std::uint64_t kMostUnsent = 32U << 10;
// Questions in a row that brought no answer, until datagrams go over the lifeline.
constexpr unsigned kMissed = 8;
constexpr unsigned kMissedForSize = 3;  // until smaller ones are tried

// Where the other end of a socket is, or this one; loopback for a Unix socket.
UdpAddress address_beside(const FileDescriptor& socket, bool other) {
  sockaddr_storage stored{};
  socklen_t length = sizeof stored;
  auto* const raw = reinterpret_cast<sockaddr*>(&stored);
  check(other ? ::getpeername(socket.get(), raw, &length) : ::getsockname(socket.get(), raw, &length),
        "reading a connection's address");
  UdpAddress address("127.0.0.1:0");
  if (stored.ss_family == AF_INET6) address = UdpAddress("[::1]:0");
  if (stored.ss_family == AF_INET || stored.ss_family == AF_INET6)
    std::memcpy(address.raw(), &stored, address.bytes());
  return address;
}

UdpAddress with_port(UdpAddress address, std::uint16_t port) {
  address.set_port(port);
  return address;
}

}  // namespace

UdpLink::UdpLink(Connection connection, int own, const UdpLinkOptions& options, EventLoop& loop,
                 FrameHandler& handler)
    : Link(connection.rank, handler),
      options_(options),
      own_(own),
      loop_(loop),
      lifeline_(std::move(connection.streams.at(0))),
      timer_(check(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "creating a timer")),
      // Of what a datagram carries its tag says more than a frame's checksum would.
      writer_(false) {
  if (!connection.secrets.empty()) session_ = connection.secrets[0];
  set_non_blocking(lifeline_);
  other_ = address_beside(lifeline_, true);
  const UdpPaths& paths = options.end.sender.paths;
  socket_.emplace(listening(address_beside(lifeline_, false), paths), options.socket);
  mine_ = {kIntroductionMagic,
           static_cast<std::uint16_t>(socket_->address().port()),
           kIntroductionVersion,
           static_cast<std::uint8_t>(wire::has_aes() ? 1 : 0),
           {},
           packed(paths.addresses)};
  wire::fill_random(mine_.secret);
  // Nothing else has been sent there: it takes so few bytes at once.
  check(static_cast<int>(::send(lifeline_.get(), &mine_, sizeof mine_, MSG_NOSIGNAL)),
        "introducing a link of datagrams");
  for (const int fd : {lifeline_.get(), socket_->fd(), timer_.get()})  // in the order of their numbers
    handles_.push_back(loop_.watch(fd, *this, handles_.size()));
}

UdpLink::~UdpLink() {
  if (!gone()) lose(std::nullopt, {});
}

void UdpLink::lose(std::optional<ErrorCode> failure, const std::string& why) {
  for (const EventLoop::Handle handle : handles_) loop_.unwatch(handle);
  lifeline_.reset();
  end_.reset();
  socket_.reset();
  end(failure, why);
}

bool UdpLink::send(OutFrame frame) {
  const bool owned = frame.reported;
  writer_.seal(frame);
  queue_.push(std::move(frame));
  return owned;
}

void UdpLink::taken(const OutFrame& frame) {
  if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
}

// Frames from the queue into the flow, as long as little of them waits there.
void UdpLink::fill() {
  protocol::DatagramFlow& flow = end_->flow();
  std::array<iovec, wire::FrameWriter<OutFrame>::kParts> parts;
  while (flow.unsent(0) < kMostUnsent && flow.room(0) > 0 && !idle()) {
    while (!queue_.empty() && writer_.takes_more(kMostUnsent)) writer_.commit(queue_.pop());
    std::size_t total = 0, written = 0;
    const std::size_t n = writer_.gather(parts, total);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t some =
          flow.write(0, {static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len});
      written += some;
      if (some < parts[i].iov_len) break;
    }
    statistics_.bytes_sent += written;
    writer_.release(written, [this](const OutFrame& frame) { taken(frame); });
  }
}

void UdpLink::flush() {
  // What is to be sent at once need not wait for a look at the lifeline.
  if (!gone() && !end_) read_lifeline();
  if (!gone()) work();
}

// Everything that can be done now without waiting. True if anything was read.
bool UdpLink::work() {
  if (!end_) return false;
  const bool any = hand_over();
  if (gone() || !end_) return any;
  const std::int64_t now = now_ns();
  end_->flow().on_time(now);
  // Before anything else is given up: it may be that the path no longer takes the larger ones.
  if (end_->flow().missed() < kMissedForSize)
    asked_for_size_ = asked_for_size_ && end_->answered_ns() == 0;
  else if (!std::exchange(asked_for_size_, true) && !unanswered_)
    end_->flow().ask_for_size();
  if (!unanswered_ && confirmed_ns_ != 0 && end_->flow().missed() >= kMissed) {
    unanswered_ = true;
    tries_.begin(now);
    end_->flow().ask();
  }
  bool all = false;
  do {
    fill();
    all = carry(now);
    if (all) try_datagrams(now);
    all = all && end_->send(now);
  } while (all && end_->flow().unsent(0) == 0 && end_->flow().room(0) > 0 && !idle());
  want_room(!all);
  note_paths();
  note_classes();
  const bool busy = end_->flow().bytes_on_their_way() > 0;
  if (busy_since_ns_ > 0) busy_seconds_ += static_cast<double>(now - busy_since_ns_) * 1e-9;
  busy_since_ns_ = busy ? now : 0;
  if (all) arm(now);  // otherwise there is nothing to do before there is room
  return any;
}

void UdpLink::want_room(bool wanted) {
  loop_.want_write(handles_[kLifeline], !to_carry_.empty());
  const int blocked = wanted && to_carry_.empty() ? end_->blocked_fd() : -1;
  loop_.want_write(handles_[kDatagrams], blocked == end_->socket().fd());
  const auto more = end_->more_sockets();
  for (std::size_t i = 0; i < more.size(); ++i)
    loop_.want_write(handles_[kMorePaths + i], blocked == more[i].fd());
}

// Smaller ones are sent from now on: an answer has come to one of them, and none to larger ones.
void UdpLink::note_size(std::size_t before) {
  if (end_->packet_bytes() >= before) return;
  Logger(own_).log(
      LogLevel::warn, "net",
      "packets of {} bytes to rank {} are lost, and nobody says so; {} pass: is the MTU smaller on "
      "the way? datagrams have that size now",
      before, peer_, end_->packet_bytes());
}

void UdpLink::note_paths() {
  const protocol::PathChooser& paths = end_->flow().paths();
  // Once: where one comes and goes a line each time would say nothing more.
  if (told_of_paths_ || paths.dead() == 0) return;
  told_of_paths_ = true;
  Logger(own_).log(LogLevel::warn, "net", "{}",
                   paths_left(paths.dead(), paths.paths(), fmt::format("rank {}", peer_)));
}

// It is a policy of this host: of each link a line would say nothing more.
void UdpLink::note_classes() const {
  if (end_->sent().class_refused > 0 && !std::exchange(*options_.told_of_classes, true))
    Logger(own_).log(LogLevel::warn, "net", "datagrams to rank {}: {}", peer_, classes_refused(end_->sent()));
}

// A timer that ends too early costs a look; setting it costs a system call.
void UdpLink::arm(std::int64_t now_ns) {
  const std::int64_t flow_at = end_->flow().next_time(now_ns);
  const std::int64_t at = unanswered_ ? std::min(flow_at, tries_.next_ns()) : flow_at;
  if (at == protocol::SentPackets::kNever || (armed_ns_ != 0 && armed_ns_ <= at)) return;
  armed_ns_ = std::max(at, now_ns + 1);
  constexpr std::int64_t kSecond = 1'000'000'000;
  itimerspec when{};
  when.it_value = {armed_ns_ / kSecond, armed_ns_ % kSecond};
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

bool UdpLink::on_ready(std::size_t which, bool readable, [[maybe_unused]] bool writable) {
  if (gone()) return false;
  bool any = false;
  if (which == kTimer && readable) {
    std::uint64_t times = 0;
    [[maybe_unused]] const auto n = ::read(timer_.get(), &times, sizeof times);
    armed_ns_ = 0;
  } else if (which == kDatagrams && readable && end_) {
    any = receive(now_ns());
  } else if (which == kLifeline && readable) {
    read_lifeline();
    any = true;
  }
  if (!gone()) any = work() || any;
  if (gone() || !lifeline_ended_) return any;
  // What it sent before it ended lies here already, or is lost.
  drain();
  if (gone()) return true;
  const bool orderly = said_goodbye_;
  lose(orderly ? std::nullopt : std::optional(ErrorCode::peer_failed),
       orderly ? "" : "it closed the connection");
  // What waits for it counts as sent, as what is sent to it from now on does.
  writer_.forget([this](const OutFrame& frame) { taken(frame); });
  while (!queue_.empty()) taken(queue_.pop());
  return true;
}

// As much as one turn may take. True: there may be more.
bool UdpLink::read_lifeline() {
  for (std::size_t budget = kLifelineBudget; budget > 0;) {
    std::array<std::byte, 16U << 10> bytes;
    const bool known = introduced_ == sizeof theirs_;
    std::byte* const to = known ? bytes.data() : reinterpret_cast<std::byte*>(&theirs_) + introduced_;
    const std::size_t most = known ? std::min(bytes.size(), budget) : sizeof theirs_ - introduced_;
    const ssize_t n = ::recv(lifeline_.get(), to, most, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      lifeline_ended_ = true;
      return false;
    }
    if (known) {
      budget -= static_cast<std::size_t>(n);
      carried_.insert(carried_.end(), bytes.begin(), bytes.begin() + n);
      if (!take_carried()) return false;
      continue;
    }
    introduced_ += static_cast<std::size_t>(n);
    if (introduced_ == sizeof theirs_) meet();
    if (gone()) return false;
  }
  return true;
}

// What is behind an introduction: kMet, and then whole datagrams. False: the link has ended.
bool UdpLink::take_carried() {
  std::size_t at = 0;
  if (confirmed_ns_ == 0) {
    if (carried_[at++] != kMet) {
      lose(ErrorCode::corrupted, "it said something else over its connection than that it has met us");
      return false;
    }
    confirmed_ns_ = now_ns();
  }
  for (std::uint16_t length = 0; carried_.size() - at >= sizeof length; at += sizeof length + length) {
    std::memcpy(&length, carried_.data() + at, sizeof length);
    if (carried_.size() - at - sizeof length < length) break;
    if (end_->take({carried_.data() + at + sizeof length, length}, now_ns())) asked_here_ = true;
  }
  carried_.erase(carried_.begin(), carried_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

// Datagrams over the lifeline, if they are to go there. False: it has no room.
bool UdpLink::carry(std::int64_t now_ns) {
  for (;;) {
    if (to_carry_.empty()) {
      // Who is asked here answers here, and sends all else as datagrams: otherwise both would go on for ever.
      if (!unanswered_ && !(asked_here_ && end_->flow().acknowledgement_due(now_ns))) return true;
      std::uint16_t length = 0;
      to_carry_.resize(sizeof length + end_->most_bytes());
      length = static_cast<std::uint16_t>(end_->next(now_ns, to_carry_.data() + sizeof length));
      std::memcpy(to_carry_.data(), &length, sizeof length);
      to_carry_.resize(length > 0 ? sizeof length + length : 0);
      if (length == 0) return true;
    }
    const ssize_t n =
        ::send(lifeline_.get(), to_carry_.data(), to_carry_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;  // or it has ended, which is found when it is read
    to_carry_.erase(to_carry_.begin(), to_carry_.begin() + n);
  }
}

// Whether datagrams pass again, or smaller ones do. All else has gone over the lifeline: none but these
// leave.
void UdpLink::try_datagrams(std::int64_t now_ns) {
  if (!unanswered_ || !tries_.due(now_ns)) return;
  for (std::size_t n = 0; n < protocol::DatagramFlow::kSizes; ++n) {
    end_->flow().ask_with_size(n);
    end_->send(now_ns, 1);
  }
  end_->flow().ask();  // over the lifeline
  tries_.tried(now_ns);
}

// What has come as datagrams.
bool UdpLink::receive(std::int64_t now_ns) {
  const std::int64_t before = end_->answered_ns();
  const std::size_t packet = end_->packet_bytes();
  if (!end_->receive(now_ns)) return false;
  note_size(packet);
  asked_here_ = false;
  if (end_->answered_ns() != before && std::exchange(unanswered_, false))
    end_->flow().ask_for_size(end_->flow().answered_size());
  if (!unanswered_) return true;
  // The other side may be trying, and is answered as it asks; and here it is worth a try soon. As everywhere,
  // what has come is handed over before it is told so: it may send the next the other way at once.
  hand_over();
  if (!end_) return true;
  if (end_->flow().acknowledgement_due(now_ns)) end_->send(now_ns, 1);
  tries_.came(now_ns);
  return true;
}

// Both sides know where the other one is, and seal with keys that nobody else has.
void UdpLink::meet() {
  if (theirs_.magic != kIntroductionMagic || theirs_.version != kIntroductionVersion) {
    lose(ErrorCode::version, "it does not speak of datagrams as this version does");
    return;
  }
  UdpEndOptions options = options_.end;
  options.suite.protection =
      session_ ? wire::DatagramProtection::encrypted : wire::DatagramProtection::authenticated;
  options.suite.cipher = mine_.has_aes != 0 && theirs_.has_aes != 0 ? wire::CipherKind::aes256_gcm
                                                                    : wire::CipherKind::chacha20_poly1305;
  const UdpKeys keys{session_ ? wire::mixed(mine_.secret, session_->send) : mine_.secret,
                     session_ ? wire::mixed(theirs_.secret, session_->receive) : theirs_.secret};
  const wire::DatagramScope outward{0, 0, static_cast<std::uint16_t>(own_),
                                    static_cast<std::uint16_t>(peer_)};
  const std::vector<UdpAddress> theirs =
      addressed(theirs_.addresses, options.sender.paths, with_port(other_, theirs_.port));
  try {
    end_.emplace(std::move(*socket_), theirs, keys, outward, options);
    for (const UdpSocket& more : end_->more_sockets())
      handles_.push_back(loop_.watch(more.fd(), *this, handles_.size()));
  } catch (const Error& e) {
    // The other one is told of by what is wrong here: so who says it is said, too.
    lose(ErrorCode::system, fmt::format("rank {} cannot send it datagrams: {}", own_, e.what()));
    return;
  }
  socket_.reset();
  end_->flow().set_pace(pace_);
  // What waits asks that itself, and need not wait for the answer.
  asked_for_size_ = idle();
  if (asked_for_size_)
    end_->flow().ask_for_size();
  else
    end_->flow().ask();
  [[maybe_unused]] const auto n = ::send(lifeline_.get(), &kMet, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// All frames that are complete: what is acknowledged next has been handed over. Of bytes there are no more
// than a flow's credit, so other links get their turn. True if anything was read.
bool UdpLink::hand_over() {
  using Step = wire::FrameReader::Step;
  bool any = false;
  while (end_) {
    auto bytes = end_->flow().readable(0);
    if (bytes.empty()) break;
    std::array<iovec, wire::FrameReader::kParts> parts;
    std::size_t n = 0, got = 0;
    reader_.space(parts, n);
    for (std::size_t i = 0; i < n && got < bytes.size(); ++i) {
      const std::size_t some = std::min(parts[i].iov_len, bytes.size() - got);
      std::memcpy(parts[i].iov_base, bytes.data() + got, some);
      got += some;
    }
    end_->flow().consumed(0, got);
    reader_.wrote(got);
    statistics_.bytes_received += got;
    any = true;
    for (Step step = reader_.next(); step != Step::more; step = reader_.next()) {
      const wire::Header& header = reader_.header();
      if (step == Step::damaged) {
        lose(ErrorCode::corrupted, reader_.why());
        return true;
      }
      if (step == Step::place)
        reader_.put(handler_.place(peer_, header));
      else if (header.type == wire::FrameType::goodbye)
        said_goodbye_ = true;
      else if (header.type != wire::FrameType::wake)
        handler_.on_frame(peer_, header, reader_.payload());
      if (gone()) return true;
    }
  }
  return any;
}

void UdpLink::drain() {
  while (!gone() && !lifeline_ended_ && read_lifeline()) hand_over();
  do {
    hand_over();
  } while (end_ && receive(now_ns()));
}

void UdpLink::check_host() {
  if (gone()) return;
  const auto seconds = static_cast<double>(options_.host_timeout_ns) * 1e-9;
  const std::uint64_t answers = tcp_answers(lifeline_.get());
  // What strangers send here says nothing of that host.
  if (answers > 0 &&
      pulse_.lost(lifeline_.get(), answers + (end_ ? end_->heard() : 0), options_.host_timeout_ns)) {
    lose(ErrorCode::peer_failed, fmt::format("its host has not answered for {:g} s", seconds));
  }
}

void UdpLink::pace(double bytes_per_second) {
  pace_ = bytes_per_second;
  if (end_) end_->flow().set_pace(bytes_per_second);
}

void UdpLink::cancel(std::uint32_t group, std::uint64_t run) {
  const auto dropped = [&](const OutFrame& frame) { handler_.on_sent(frame.header.group, frame.token); };
  queue_.cancel(group, run, dropped);
  writer_.cancel(group, run, dropped);
  reader_.forget_place(group, run);
}

bool UdpLink::unsent() const {
  return !gone() && (!idle() || (end_ && !end_->flow().all_arrived()));
}

bool UdpLink::part() {
  if (gone()) return true;
  if (!std::exchange(parting_, true)) {
    OutFrame frame;
    frame.header = encode(wire::Goodbye{});
    send(std::move(frame));
  }
  // Nobody else looks at what comes from now on.
  read_lifeline();
  if (gone()) return true;
  if (end_) receive(now_ns());
  work();
  return gone() || lifeline_ended_ || (end_ && idle() && end_->flow().all_arrived());
}

PeerStatistics UdpLink::measured() const {
  PeerStatistics sum{.rank = peer_};
  if (!end_) return sum;
  const protocol::DatagramFlow& flow = end_->flow();
  sum.retransmits = flow.statistics().lost_by_gap + flow.statistics().timeouts;
  sum.round_trip_us = static_cast<std::uint32_t>(flow.round_trip().smoothed_ns() / 1000);
  // Rounded up: what is measured is not 0.
  sum.least_round_trip_us = static_cast<std::uint32_t>((flow.round_trip().base_ns() + 999) / 1000);
  sum.acked_bytes = flow.bytes_arrived();
  sum.resent_bytes = flow.statistics().bytes_sent_again;
  sum.busy_seconds = busy_seconds_;
  sum.datagrams = true;
  sum.paths_left = flow.paths().times_left();
  return sum;
}

}  // namespace talweg::live
