#include "live/stream.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/crc32c.h"

namespace talweg::live {

namespace {
constexpr std::size_t kHeader = sizeof(wire::Header);
constexpr std::size_t kStaging = 2 * wire::kMaxPayload;
// What is read ahead while the next header is not known: enough for small frames in bulk, little enough that
// most of a large payload can still go straight to its place.
constexpr std::size_t kReadAhead = 16U << 10;
constexpr std::size_t kBatch = 32;                // frames in one system call
constexpr std::size_t kSendBudget = 256U << 10;   // before the kernel is asked whether it has sent anything
constexpr std::size_t kReceiveBudget = 1U << 20;  // before other peers get their turn
}  // namespace

Stream::Stream(FileDescriptor socket, int peer, StreamOptions options, FrameHandler& handler)
    : socket_(std::move(socket)), peer_(peer), options_(options), handler_(handler), staging_(kStaging) {
  set_non_blocking(socket_);
}

void Stream::fail(const std::string& why) {
  if (!open()) return;
  failed_ = true;
  close();
  handler_.on_peer_gone(peer_, false, why);
}

void Stream::push(OutFrame frame) {
  if (options_.checksum && frame.header.length > 0) {
    frame.header.flags |= wire::kHasChecksum;
    frame.header.payload_checksum = crc32c(frame.bytes(), frame.header.length);
  }
  wire::seal(frame.header);
  queue_.push(std::move(frame));
}

bool Stream::flush() {
  std::size_t budget = kSendBudget;
  bool any = false;
  std::array<iovec, 2 * kBatch> iov;
  while (open() && !blocked_ && !idle()) {
    while (!queue_.empty() && committed_.size() < kBatch && committed_bytes_ < budget) {
      committed_.push(queue_.pop());
      committed_bytes_ += kHeader + committed_[committed_.size() - 1].header.length;
    }
    std::size_t parts = 0;
    std::size_t total = 0;
    for (std::size_t i = 0; i < std::min(committed_.size(), kBatch); ++i) {
      OutFrame& frame = committed_[i];
      const std::size_t skip = i == 0 ? head_sent_ : 0;
      const std::size_t header_skip = std::min(skip, kHeader);
      const std::size_t payload_skip = skip - header_skip;
      if (header_skip < kHeader)
        iov[parts++] = {reinterpret_cast<std::byte*>(&frame.header) + header_skip, kHeader - header_skip};
      if (frame.header.length > payload_skip)
        iov[parts++] = {const_cast<std::byte*>(frame.bytes()) + payload_skip,
                        frame.header.length - payload_skip};
      total += kHeader + frame.header.length - skip;
    }
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = parts;
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      fail(fmt::format("sending to it: {}", std::strerror(errno)));
      return any;
    }
    const std::size_t sent = n > 0 ? static_cast<std::size_t>(n) : 0;
    bytes_sent_ += sent;
    any = any || sent > 0;
    budget -= std::min(budget, sent);
    blocked_ = sent < total || budget == 0;
    head_sent_ += sent;
    while (!committed_.empty() && head_sent_ >= kHeader + committed_.front().header.length) {
      const OutFrame frame = committed_.pop();
      head_sent_ -= kHeader + frame.header.length;
      committed_bytes_ -= kHeader + frame.header.length;
      if (!frame.reported) handler_.on_sent(frame.header.group, frame.token);
    }
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
    incoming_->header.flags &= ~wire::kHasChecksum;  // its first part is not here
  }
}

bool Stream::payload_sound(const wire::Header& header, const std::byte* payload) {
  if ((header.flags & wire::kHasChecksum) == 0 || header.payload_checksum == crc32c(payload, header.length))
    return true;
  fail(fmt::format("a payload of {} bytes from it does not match its checksum", header.length));
  return false;
}

// Hands over what is complete in the staging buffer. False when the stream has failed.
bool Stream::parse() {
  while (end_ - begin_ >= kHeader) {
    wire::Header header;
    const std::byte* at = staging_.data() + begin_;
    if (const char* why = wire::decode(std::span<const std::byte, kHeader>(at, kHeader), header);
        why != nullptr) {
      fail(fmt::format("a frame from it cannot be read: {}", why));
      return false;
    }
    const std::size_t staged = end_ - begin_ - kHeader;
    if (staged >= header.length) {
      if (!payload_sound(header, at + kHeader)) return false;
      begin_ += kHeader + header.length;
      if (header.type == wire::FrameType::goodbye) said_goodbye_ = true;
      if (header.type != wire::FrameType::goodbye && header.type != wire::FrameType::wake)
        handler_.on_frame(peer_, header, at + kHeader);
      if (!open()) return false;
      continue;
    }
    const Place place = handler_.place(peer_, header);
    if (!open()) return false;
    if (place.data == nullptr) break;  // collected in the staging buffer
    std::memcpy(place.data, at + kHeader, staged);
    incoming_ = Incoming{header, place, staged};
    begin_ = end_ = 0;
    return true;
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && staging_.size() - begin_ < wire::kMaxPayload + kHeader) {
    std::memmove(staging_.data(), staging_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

bool Stream::receive() {
  std::size_t budget = kReceiveBudget;
  bool any = false;
  while (open() && budget > 0) {
    std::array<iovec, 2> iov;
    std::size_t parts = 0;
    std::size_t wanted = 0;
    std::size_t direct = 0;
    std::size_t stage = kReadAhead;
    if (incoming_) {
      direct = incoming_->header.length - incoming_->received;
      iov[parts++] = {incoming_->place.data + incoming_->received, direct};
    } else if (end_ - begin_ >= kHeader) {
      wire::Header header;
      std::memcpy(&header, staging_.data() + begin_, kHeader);
      stage += kHeader + header.length - (end_ - begin_);
    }
    stage = std::min(stage, staging_.size() - end_);
    iov[parts++] = {staging_.data() + end_, stage};
    wanted = direct + stage;
    const ssize_t n = ::readv(socket_.get(), iov.data(), static_cast<int>(parts));
    if (n == 0) {
      if (said_goodbye_) {
        close();
      } else {
        fail("it closed the connection");
      }
      return true;
    }
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return any;
      if (said_goodbye_) {
        close();
      } else {
        fail(fmt::format("receiving from it: {}", std::strerror(errno)));
      }
      return any;
    }
    any = true;
    auto got = static_cast<std::size_t>(n);
    bytes_received_ += got;
    budget -= std::min(budget, got);
    const bool drained = got < wanted;
    if (incoming_) {
      const std::size_t to_place = std::min(got, direct);
      incoming_->received += to_place;
      end_ += got - to_place;
      if (incoming_->received == incoming_->header.length) {
        const Incoming complete = *std::exchange(incoming_, std::nullopt);
        if (!payload_sound(complete.header, complete.place.data)) return true;
        if (complete.place.data != discard_.data())
          handler_.on_frame(peer_, complete.header, complete.place.data);
        if (!open()) return true;
      }
    } else {
      end_ += got;
    }
    if (!incoming_ && !parse()) return true;
    if (drained) return true;
  }
  return any;
}

}  // namespace talweg::live
