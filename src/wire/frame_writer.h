// FrameWriter: frames in, the bytes of a stream out, sent from where they lie. Pure: whoever has the stream
// asks where the next bytes are and says how many of them were taken.
//
//   writer.seal(frame);                                          // before it waits: its checksums
//   while (writer.takes_more(budget) && something waits) writer.commit(next frame);
//   sendmsg(writer.gather(parts, total));
//   writer.release(sent, [](const Frame& f) { it has been taken; });
//
// A Frame has a header, bytes() of payload, a text of its own (bytes() when it is not empty), a token with a
// run, and `reported`: false while somebody waits to hear that its payload is no longer needed.
//
// With a cipher, what is committed is encrypted into a buffer: its payload is not read again.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/ring_queue.h"
#include "wire/cipher.h"
#include "wire/frame.h"

namespace talweg::wire {

// Frames as they go onto an encrypted stream.
class SealedFrames {
 public:
  // Less than `most` bytes are here when a frame is appended.
  SealedFrames(Cipher cipher, std::size_t most);
  void append(const Header& header, const std::byte* payload);
  std::byte* data() { return bytes_.data() + begin_; }
  void remove(std::size_t bytes);

 private:
  Cipher cipher_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

template <class Frame>
class FrameWriter {
 public:
  static constexpr std::size_t kFrames = 32;  // in one system call
  static constexpr std::size_t kParts = 2 * kFrames;
  static constexpr std::size_t kMostBytes = 256U << 10;  // committed before a frame that is the last

  // Of payloads a checksum is taken if `checksum`; not of encrypted ones: their tags say more.
  explicit FrameWriter(bool checksum = true, std::optional<Cipher> cipher = std::nullopt)
      : checksum_(checksum && !cipher) {
    if (cipher) sealed_.emplace(*cipher, kMostBytes);
  }

  void seal(Frame& frame) const {
    if (checksum_ && frame.header.length > 0) {
      frame.header.flags |= kHasChecksum;
      frame.header.payload_checksum = crc32c(frame.bytes(), frame.header.length);
    }
    wire::seal(frame.header);
  }

  // Whether another frame may be committed when no more than `budget` bytes are to be.
  bool takes_more(std::size_t budget) const {
    return committed_.size() < kFrames && bytes_ < std::min(budget, kMostBytes);
  }
  // Decides that it is next on the wire: nothing overtakes it any more.
  void commit(Frame frame) {
    committed_.push(std::move(frame));
    const Frame& last = committed_[committed_.size() - 1];
    bytes_ += bytes_of(last);
    if (sealed_) sealed_->append(last.header, last.bytes());
  }
  bool empty() const { return committed_.empty(); }
  std::size_t frames() const { return committed_.size(); }
  // Bytes of the first frame that have not been taken; something is committed.
  std::size_t first_bytes() { return bytes_of(committed_.front()) - head_sent_; }
  // Nothing of it has been taken.
  bool at_frame_start() const { return head_sent_ == 0; }

  // Fills in where the committed bytes lie that have not been taken, and how many there are.
  std::size_t gather(std::array<iovec, kParts>& parts, std::size_t& total) {
    total = bytes_ - head_sent_;
    if (sealed_) {
      parts[0] = {sealed_->data() + head_sent_, total};
      return 1;
    }
    std::size_t n = 0;
    for (std::size_t i = 0; i < committed_.size(); ++i) {
      Frame& frame = committed_[i];
      const std::size_t skip = i == 0 ? head_sent_ : 0;
      const std::size_t header_skip = std::min(skip, sizeof(Header));
      const std::size_t payload_skip = skip - header_skip;
      if (header_skip < sizeof(Header))
        parts[n++] = {reinterpret_cast<std::byte*>(&frame.header) + header_skip,
                      sizeof(Header) - header_skip};
      if (frame.header.length > payload_skip)
        parts[n++] = {const_cast<std::byte*>(frame.bytes()) + payload_skip,
                      frame.header.length - payload_skip};
    }
    return n;
  }

  // `sent` more bytes have been taken. Calls `done` for each frame that has been completed by that.
  template <class Done>
  void release(std::size_t sent, Done&& done) {
    head_sent_ += sent;
    while (!committed_.empty() && head_sent_ >= bytes_of(committed_.front())) {
      const Frame frame = committed_.pop();
      const std::size_t bytes = bytes_of(frame);
      head_sent_ -= bytes;
      bytes_ -= bytes;
      if (sealed_) sealed_->remove(bytes);
      done(frame);
    }
  }

  // The memory of a run goes away. What the wire may have the beginning of is completed, from a copy; calls
  // `rescued` for each such frame, whose sending nobody waits for any more.
  template <class Rescued>
  void cancel(std::uint32_t group, std::uint64_t run, Rescued&& rescued) {
    for (std::size_t i = 0; i < committed_.size(); ++i) {
      Frame& frame = committed_[i];
      if (frame.reported || frame.header.group != group || frame.token.run != run) continue;
      if (frame.payload != nullptr)
        frame.text.assign(reinterpret_cast<const char*>(frame.payload), frame.header.length);
      frame.reported = true;
      rescued(frame);
    }
  }

  // Nothing is taken any more. Calls `dropped` for each frame.
  template <class Dropped>
  void forget(Dropped&& dropped) {
    while (!committed_.empty()) dropped(committed_.pop());
    if (sealed_) sealed_->remove(bytes_);
    bytes_ = head_sent_ = 0;
  }

 private:
  std::size_t bytes_of(const Frame& frame) const {
    const std::size_t n = frame.header.length;
    return sizeof(Header) + n + (sealed_ ? (n > 0 ? 2 * kTagBytes : kTagBytes) : 0);
  }

  const bool checksum_;
  std::optional<SealedFrames> sealed_;
  RingQueue<Frame> committed_;
  std::size_t bytes_ = 0;      // of all of them
  std::size_t head_sent_ = 0;  // of the first one's
};

}  // namespace talweg::wire
