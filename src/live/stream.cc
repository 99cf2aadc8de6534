#include "live/stream.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "live/tcp_traffic.h"

namespace talweg::live {

namespace {
constexpr std::size_t kHeader = sizeof(wire::Header);
constexpr std::size_t kMaxFrame = kHeader + wire::kMaxPayload + 2 * wire::kTagBytes;
constexpr std::size_t kStaging = 2 * wire::kMaxPayload;
// What is read ahead while the next header is not known: enough for small frames in bulk, little enough that
// most of a large payload can still go straight to its place.
constexpr std::size_t kReadAhead = 16U << 10;
constexpr std::size_t kBatch = 32;               // frames in one system call
constexpr std::size_t kSendBudget = 256U << 10;  // before the kernel is asked whether it has sent anything
constexpr std::size_t kReceiveBudgetBytes = 1U << 20;  // before other peers get their turn
constexpr std::int64_t kLimitEveryNs = 10'000'000;
}  // namespace

Stream::Stream(FileDescriptor socket, int peer, StreamOptions options, FrameHandler& handler,
               const wire::SessionSecrets* secrets)
    : socket_(std::move(socket)), peer_(peer), options_(options), handler_(handler), staging_(kStaging) {
  set_non_blocking(socket_);
  limit_unsent();
  if (secrets == nullptr) return;
  encryption_.emplace(Encryption{wire::Cipher(secrets->cipher, secrets->send),
                                 wire::Cipher(secrets->cipher, secrets->receive),
                                 {},
                                 0,
                                 0});
  encryption_->sealed.resize(kSendBudget + kMaxFrame);
}

void Stream::fail(ErrorCode code, const std::string& why) {
  if (!open()) return;
  failed_ = true;
  close();
  handler_.on_peer_gone(peer_, code, why);
}

void Stream::push(OutFrame frame) {
  // What is encrypted has a tag, which says more.
  if (options_.checksum && frame.header.length > 0 && !encryption_) {
    frame.header.flags |= wire::kHasChecksum;
    frame.header.payload_checksum = crc32c(frame.bytes(), frame.header.length);
  }
  wire::seal(frame.header);
  queue_.push(std::move(frame));
}

// What the kernel holds unsent cannot be overtaken any more. The limit sinks by half at most: after a pause
// the congestion window begins small.
void Stream::limit_unsent() {
  const std::int64_t now = now_ns();
  if (unsent_limit_ > 0 && now - limited_at_ns_ < kLimitEveryNs) return;
  limited_at_ns_ = now;
  const TcpPace pace = tcp_pace(socket_.get());
  const std::int64_t limit =
      std::max(protocol::unsent_limit(pace.window_bytes, pace.round_trip_ns), unsent_limit_ / 2);
  if (limit == unsent_limit_) return;
  unsent_limit_ = limit;
  const int value = static_cast<int>(limit);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof value);
}

// Decides what is next on the wire.
void Stream::commit(std::size_t budget) {
  while (!queue_.empty() && committed_.size() < kBatch && committed_bytes_ < budget) {
    committed_.push(queue_.pop());
    const OutFrame& frame = committed_[committed_.size() - 1];
    committed_bytes_ += frame_bytes(frame);
    if (encryption_) encrypt(frame);
  }
}

// Less than the budget was committed before this frame: behind the gap of what has been sent there is room.
void Stream::encrypt(const OutFrame& frame) {
  Encryption& e = *encryption_;
  if (e.end + frame_bytes(frame) > e.sealed.size()) {
    std::memmove(e.sealed.data(), e.sealed.data() + e.begin, e.end - e.begin);
    e.end -= e.begin;
    e.begin = 0;
  }
  std::byte* at = e.sealed.data() + e.end;
  const auto* header = reinterpret_cast<const std::byte*>(&frame.header);
  e.to.seal(header, kHeader, at, at + kHeader);
  if (const std::size_t n = frame.header.length; n > 0) {
    at += head_bytes();
    e.to.seal(frame.bytes(), n, at, at + n);
  }
  e.end += frame_bytes(frame);
}

// Fills in where the committed bytes lie that the kernel does not have yet.
std::size_t Stream::gather(iovec* iov, std::size_t& total) {
  total = committed_bytes_ - head_sent_;
  if (encryption_) {
    iov[0] = {encryption_->sealed.data() + encryption_->begin + head_sent_, total};
    return 1;
  }
  std::size_t parts = 0;
  for (std::size_t i = 0; i < committed_.size(); ++i) {
    OutFrame& frame = committed_[i];
    const std::size_t skip = i == 0 ? head_sent_ : 0;
    const std::size_t header_skip = std::min(skip, kHeader);
    const std::size_t payload_skip = skip - header_skip;
    if (header_skip < kHeader)
      iov[parts++] = {reinterpret_cast<std::byte*>(&frame.header) + header_skip, kHeader - header_skip};
    if (frame.header.length > payload_skip)
      iov[parts++] = {const_cast<std::byte*>(frame.bytes()) + payload_skip,
                      frame.header.length - payload_skip};
  }
  return parts;
}

// The kernel has taken `sent` more bytes.
void Stream::release(std::size_t sent) {
  head_sent_ += sent;
  while (!committed_.empty() && head_sent_ >= frame_bytes(committed_.front())) {
    const OutFrame frame = committed_.pop();
    const std::size_t bytes = frame_bytes(frame);
    head_sent_ -= bytes;
    committed_bytes_ -= bytes;
    if (encryption_) encryption_->begin += bytes;
    if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
  }
  if (encryption_ && committed_.empty()) encryption_->begin = encryption_->end = 0;
}

bool Stream::flush() {
  std::size_t budget = kSendBudget;
  bool any = false;
  std::array<iovec, 2 * kBatch> iov;
  while (open() && !blocked_ && !idle()) {
    commit(std::min(budget, static_cast<std::size_t>(unsent_limit_)));
    std::size_t total = 0;
    msghdr message{};
    message.msg_iovlen = gather(iov.data(), total);
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
    release(sent);
  }
  return any;
}

void Stream::cancel(std::uint32_t group, std::uint64_t run) {
  const auto dropped = [&](const OutFrame& frame) { handler_.on_sent(frame.header.group, frame.token); };
  queue_.cancel(group, run, dropped);
  // What the wire has the beginning of must be completed: from a copy, since the caller's memory may go away.
  for (std::size_t i = 0; i < committed_.size(); ++i) {
    OutFrame& frame = committed_[i];
    if (frame.reported || frame.header.group != group || frame.token.run != run) continue;
    if (frame.payload != nullptr)
      frame.text.assign(reinterpret_cast<const char*>(frame.payload), frame.header.length);
    frame.reported = true;
    dropped(frame);
  }
  if (incoming_ && incoming_->place.data != nullptr && incoming_->place.group == group &&
      incoming_->place.run == run) {
    discard_.resize(incoming_->header.length);
    incoming_->place = {discard_.data(), 0, 0};
  }
}

void Stream::forget() {
  while (!idle()) {
    const OutFrame frame = committed_.empty() ? queue_.pop() : committed_.pop();
    if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
  }
  committed_bytes_ = head_sent_ = 0;
}

// Null, or why the frame must not be acted upon.
const char* Stream::open_header(std::byte* at, wire::Header& header) {
  if (encryption_ && !encryption_->from.open(at, kHeader, at + kHeader, at)) return "it is forged or damaged";
  return wire::decode(std::span<const std::byte, kHeader>(at, kHeader), header);
}

bool Stream::open_payload(const wire::Header& header, std::byte* payload, const std::byte* tag) {
  if (header.length == 0) return true;
  if (encryption_) {
    if (encryption_->from.open(payload, header.length, tag, payload)) return true;
    fail(ErrorCode::corrupted,
         fmt::format("a payload of {} bytes from it is forged or damaged", header.length));
    return false;
  }
  if ((header.flags & wire::kHasChecksum) == 0 || header.payload_checksum == crc32c(payload, header.length))
    return true;
  fail(ErrorCode::corrupted,
       fmt::format("a payload of {} bytes from it does not match its checksum", header.length));
  return false;
}

// Hands over what is complete in the staging buffer. False when the stream has failed.
bool Stream::parse() {
  for (;;) {
    if (!header_) {
      if (end_ - begin_ < head_bytes()) break;
      wire::Header header;
      if (const char* why = open_header(staging_.data() + begin_, header); why != nullptr) {
        fail(ErrorCode::corrupted, fmt::format("a frame from it cannot be read: {}", why));
        return false;
      }
      begin_ += head_bytes();
      header_ = header;
    }
    const wire::Header header = *header_;
    std::byte* const payload = staging_.data() + begin_;
    const std::size_t staged = end_ - begin_;
    if (staged >= body_bytes(header)) {
      if (!open_payload(header, payload, payload + header.length)) return false;
      begin_ += body_bytes(header);
      header_.reset();
      if (header.type == wire::FrameType::goodbye) said_goodbye_ = true;
      if (header.type != wire::FrameType::goodbye && header.type != wire::FrameType::wake)
        handler_.on_frame(peer_, header, payload);
      if (!open()) return false;
      continue;
    }
    const Place place = handler_.place(peer_, header);
    if (!open()) return false;
    if (place.data == nullptr) break;  // collected in the staging buffer
    incoming_ = Incoming{header, place, staged, {}};
    const std::size_t of_payload = std::min<std::size_t>(staged, header.length);
    std::memcpy(place.data, payload, of_payload);
    std::memcpy(incoming_->tag.data(), payload + of_payload, staged - of_payload);
    header_.reset();
    begin_ = end_ = 0;
    return true;
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && staging_.size() - begin_ < kMaxFrame) {
    std::memmove(staging_.data(), staging_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

// False when the stream has failed.
bool Stream::complete_incoming() {
  Incoming done = *std::exchange(incoming_, std::nullopt);
  if (done.place.data == discard_.data()) {
    if (encryption_) encryption_->from.skip();  // its first part is not here
    return true;
  }
  if (!open_payload(done.header, done.place.data, done.tag.data())) return false;
  handler_.on_frame(peer_, done.header, done.place.data);
  return open();
}

// `got` bytes have come: first of the payload that has a place, then behind what is staged.
void Stream::take(std::size_t got) {
  if (incoming_) {
    const std::size_t direct = std::min(got, body_bytes(incoming_->header) - incoming_->received);
    incoming_->received += direct;
    got -= direct;
  }
  end_ += got;
}

bool Stream::receive() {
  std::size_t budget = kReceiveBudgetBytes;
  bool any = false;
  while (open() && budget > 0) {
    std::array<iovec, 3> iov;
    std::size_t parts = 0;
    std::size_t wanted = 0;
    const auto want = [&](std::byte* at, std::size_t n) {
      if (n > 0) iov[parts++] = {at, n};
      wanted += n;
    };
    std::size_t stage = kReadAhead;
    if (incoming_) {
      const std::size_t length = incoming_->header.length;
      const std::size_t in_place = std::min(incoming_->received, length);
      const std::size_t in_tag = incoming_->received - in_place;
      want(incoming_->place.data + in_place, length - in_place);
      want(incoming_->tag.data() + in_tag, body_bytes(incoming_->header) - length - in_tag);
    } else if (header_) {
      stage += body_bytes(*header_) - (end_ - begin_);
    }
    want(staging_.data() + end_, std::min(stage, staging_.size() - end_));
    const ssize_t n = ::readv(socket_.get(), iov.data(), static_cast<int>(parts));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return any;
    if (n <= 0) {
      std::string why =
          n == 0 ? "it closed the connection" : fmt::format("receiving from it: {}", std::strerror(errno));
      if (n == 0 && !send_error_.empty()) why = send_error_;
      if (said_goodbye_)
        close();
      else
        fail(ErrorCode::peer_failed, why);
      return any || n == 0;
    }
    any = true;
    const auto got = static_cast<std::size_t>(n);
    bytes_received_ += got;
    budget -= std::min(budget, got);
    take(got);
    if (incoming_ && incoming_->received == body_bytes(incoming_->header) && !complete_incoming())
      return true;
    if (!incoming_ && !parse()) return true;
    if (got < wanted) return true;
  }
  return any;
}

}  // namespace talweg::live
