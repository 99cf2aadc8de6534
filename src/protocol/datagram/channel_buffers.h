// The bytes of one channel of a flow at its two ends. Both keep what they need in a ring of fixed size and
// grow with nothing that comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/datagram/range_set.h"

namespace talweg::protocol {

// A power of two of bytes, addressed by how many came before.
class ByteRing {
 public:
  explicit ByteRing(std::size_t bytes);
  std::size_t size() const { return bytes_.size(); }
  void put(std::uint64_t offset, std::span<const std::byte> from);
  void get(std::uint64_t offset, std::span<std::byte> into) const;
  // What lies in one piece from there on, at most `most` bytes.
  std::span<const std::byte> piece(std::uint64_t offset, std::size_t most) const;

 private:
  std::vector<std::byte> bytes_;
};

// From the moment they are written until they are known to have arrived.
class SendBuffer {
 public:
  // `limit`: what the other side takes before it says more.
  SendBuffer(std::size_t bytes, std::uint64_t limit);

  std::size_t room() const { return ring_.size() - static_cast<std::size_t>(end_ - begin_); }
  // Takes as much as there is room for; how much.
  std::size_t write(std::span<const std::byte> bytes);

  // The next bytes that should leave: lost ones first. None: there are none, or no credit for them.
  struct Piece {
    std::uint64_t offset = 0;
    std::size_t length = 0;
    bool again = false;
  };
  Piece next(std::size_t most) const;
  void get(const Piece& piece, std::byte* into) const;
  void sent(const Piece& piece);

  void on_arrived(std::uint64_t offset, std::size_t length);
  void on_lost(std::uint64_t offset, std::size_t length);
  void on_limit(std::uint64_t limit);

  std::uint64_t written() const { return end_; }
  std::uint64_t arrived() const { return begin_; }  // up to here everything has
  std::uint64_t never_sent() const { return end_ - next_; }
  bool out_of_credit() const { return lost_.empty() && next_ < end_ && next_ >= limit_; }

 private:
  ByteRing ring_;
  std::uint64_t begin_ = 0;  // before it all have arrived
  std::uint64_t next_ = 0;   // from here on nothing has left yet
  std::uint64_t end_ = 0;
  std::uint64_t limit_;
  RangeSet arrived_;  // behind begin_
  RangeSet lost_;     // to be sent again
};

// From the moment they arrive, in whatever order, until they have been read.
class ReceiveBuffer {
 public:
  explicit ReceiveBuffer(std::size_t bytes);

  enum class Result : std::uint8_t { kept, known, no_room, too_scattered };
  Result take(std::uint64_t offset, std::span<const std::byte> bytes);
  // What can be read now, in one piece; empty: nothing. Then consumed().
  std::span<const std::byte> readable() const;
  void consumed(std::size_t bytes);

  // So far may the other side send.
  std::uint64_t limit() const { return begin_ + ring_.size(); }
  std::uint64_t read() const { return begin_; }

 private:
  ByteRing ring_;
  std::uint64_t begin_ = 0;  // read up to here
  RangeSet arrived_;
};

}  // namespace talweg::protocol
