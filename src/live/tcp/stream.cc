#include "live/tcp/stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "live/tcp/tcp_traffic.h"

namespace talweg::live {

namespace {
constexpr std::size_t kSendBudget = 256U << 10;  // before the kernel is asked whether it has sent anything
constexpr std::size_t kReceiveBudgetBytes = 1U << 20;  // before other peers get their turn
constexpr std::int64_t kLimitEveryNs = 10'000'000;

std::optional<wire::Cipher> cipher_of(const wire::SessionSecrets* secrets,
                                      wire::Secret wire::SessionSecrets::*key) {
  if (secrets == nullptr) return std::nullopt;
  return wire::Cipher(secrets->cipher, secrets->*key);
}
}  // namespace

Stream::Stream(FileDescriptor socket, int peer, StreamOptions options, FrameHandler& handler,
               const wire::SessionSecrets* secrets)
    : socket_(std::move(socket)),
      peer_(peer),
      handler_(handler),
      writer_(options.checksum, cipher_of(secrets, &wire::SessionSecrets::send)),
      reader_(cipher_of(secrets, &wire::SessionSecrets::receive)) {
  set_non_blocking(socket_);
  limit_unsent();
}

void Stream::watch(EventLoop& loop, Watcher& who, std::size_t which) {
  loop_ = &loop;
  handle_ = loop.watch(fd(), who, which);
}

void Stream::join(Fence& fence, std::size_t number) {
  fence_ = &fence;
  number_ = number;
}

void Stream::close() {
  if (loop_ != nullptr) loop_->unwatch(handle_);
  loop_ = nullptr;
  socket_.reset();
  if (!end_) end_.emplace();
}

void Stream::push(OutFrame frame) {
  writer_.seal(frame);
  queue_.push(std::move(frame));
}

// TCP keeps to it by itself, where no fair queueing (fq) of the interface does. A socket that was never paced
// is left as it was: from the first pace on TCP spreads all that the socket sends, if faster than the network
// takes it.
void Stream::pace(double bytes_per_second) {
  if (bytes_per_second == pace_ || !open()) return;
  pace_ = bytes_per_second;
  constexpr double kMost = 1e15;  // beyond any link; and it fits
  const std::uint64_t value = pace_ > 0 ? static_cast<std::uint64_t>(std::clamp(pace_, 1.0, kMost))
                                        : std::numeric_limits<std::uint64_t>::max();
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &value, sizeof value);
  if (pace_ > 0) set_unsent_limit(std::min(unsent_limit_, protocol::paced_limit(pace_)));
}

// What the kernel holds unsent cannot be overtaken any more. The limit sinks by half at most, but for a pace:
// after a pause the congestion window begins small.
void Stream::limit_unsent() {
  const std::int64_t now = now_ns();
  if (unsent_limit_ > 0 && now - limited_at_ns_ < kLimitEveryNs) return;
  limited_at_ns_ = now;
  const TcpPace known = tcp_pace(socket_.get());
  const std::int64_t limit =
      std::max(protocol::unsent_limit(known.window_bytes, known.round_trip_ns), unsent_limit_ / 2);
  set_unsent_limit(pace_ > 0 ? std::min(limit, protocol::paced_limit(pace_)) : limit);
}

void Stream::set_unsent_limit(std::int64_t bytes) {
  if (bytes == unsent_limit_) return;
  unsent_limit_ = bytes;
  const int value = static_cast<int>(bytes);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof value);
}

void Stream::on_taken(const OutFrame& frame) {
  if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
}

bool Stream::flush() {
  std::size_t budget = kSendBudget;
  bool any = false;
  std::array<iovec, wire::FrameWriter<OutFrame>::kParts> iov;
  while (open() && !blocked_ && !idle()) {
    const std::size_t most = std::min(budget, static_cast<std::size_t>(unsent_limit_));
    while (!queue_.empty() && writer_.takes_more(most)) writer_.commit(queue_.pop());
    std::size_t total = 0;
    msghdr message{};
    message.msg_iovlen = writer_.gather(iov, total);
    message.msg_iov = iov.data();
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      // What it wrote before it closed, its goodbye or the reason of a failure, is still to be read:
      // receive() ends this stream.
      send_error_ = fmt::format("sending to it: {}", std::strerror(errno));
      blocked_ = true;
      return any;
    }
    const std::size_t sent = n > 0 ? static_cast<std::size_t>(n) : 0;
    bytes_sent_ += sent;
    any = any || sent > 0;
    budget -= std::min(budget, sent);
    blocked_ = sent < total || budget == 0;
    if (blocked_) limit_unsent();
    writer_.release(sent, [this](const OutFrame& frame) { on_taken(frame); });
  }
  if (loop_ != nullptr) loop_->want_write(handle_, blocked_ && open());
  return any;
}

bool Stream::on_ready(bool readable, bool writable) {
  bool any = false;
  if (writable) {
    blocked_ = false;
    any = flush();
  }
  return (readable && receive()) || any;
}

bool Stream::say_goodbye() {
  if (!std::exchange(parting_, true)) {
    OutFrame frame;
    frame.header = encode(wire::Goodbye{});
    push(std::move(frame));
  }
  blocked_ = false;
  flush();
  return idle() || deaf();
}

// Closing a TCP socket that has something unread resets the connection, and what the other side has not yet
// been sent is lost: our last words. So what comes is thrown away until they have arrived.
bool Stream::linger() {
  if (deaf()) return true;
  ::shutdown(fd(), SHUT_WR);
  std::array<std::byte, 4096> ignored;
  while (::recv(fd(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
  }
  return arrived();
}

bool Stream::arrived() const {
  int unacknowledged = 0;
  return ::ioctl(fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

void Stream::cancel(std::uint32_t group, std::uint64_t run) {
  const auto dropped = [&](const OutFrame& frame) { handler_.on_sent(frame.header.group, frame.token); };
  queue_.cancel(group, run, dropped);
  writer_.cancel(group, run, dropped);
  reader_.forget_place(group, run);
}

void Stream::forget() {
  writer_.forget([this](const OutFrame& frame) { on_taken(frame); });
  while (!queue_.empty()) on_taken(queue_.pop());
}

// A frame that is to come behind all others, and has not come on all streams.
bool Stream::held_back(const wire::Header& header) {
  return (header.flags & wire::kBehindAll) != 0 && fence_ != nullptr && !fence_->last(number_);
}

// All that is complete. False when the stream has ended.
bool Stream::hand_over() {
  using Step = wire::FrameReader::Step;
  for (;;) {
    const Step step = reader_.next();
    if (step == Step::more) return true;
    if (step == Step::damaged) {
      end_.emplace(End{ErrorCode::corrupted, reader_.why()});
      return false;
    }
    const wire::Header& header = reader_.header();
    if (step == Step::place)
      reader_.put(handler_.place(peer_, header));
    else if (header.type == wire::FrameType::goodbye)
      said_goodbye_ = true;
    else if (header.type != wire::FrameType::wake && !held_back(header))
      handler_.on_frame(peer_, header, reader_.payload());
    if (!open()) return false;
  }
}

bool Stream::receive() {
  std::size_t budget = kReceiveBudgetBytes;
  bool any = false;
  while (open() && budget > 0) {
    std::array<iovec, wire::FrameReader::kParts> iov;
    std::size_t parts = 0;
    const std::size_t wanted = reader_.space(iov, parts);
    const ssize_t n = ::readv(socket_.get(), iov.data(), static_cast<int>(parts));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return any;
    if (n <= 0) {
      end_.emplace();
      if (!said_goodbye_) {
        end_->failure = ErrorCode::peer_failed;
        end_->why = n < 0                 ? fmt::format("receiving from it: {}", std::strerror(errno))
                    : send_error_.empty() ? "it closed the connection"
                                          : send_error_;
      }
      return any || n == 0;
    }
    any = true;
    const auto got = static_cast<std::size_t>(n);
    bytes_received_ += got;
    budget -= std::min(budget, got);
    reader_.wrote(got);
    if (!hand_over() || got < wanted) return true;
  }
  return any;
}

}  // namespace talweg::live
