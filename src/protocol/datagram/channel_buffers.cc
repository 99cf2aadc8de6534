#include "protocol/datagram/channel_buffers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "wire/flow_packets.h"

namespace talweg::protocol {

namespace {
// Holes that a receiver remembers. A datagram that would make one more counts as lost; its sender sends it
// again.
constexpr std::size_t kMostHoles = 256;
// The sender's own: no more than it can have datagrams on their way, so that nothing is ever left out.
constexpr std::size_t kMostPieces = 1U << 16;
}  // namespace

ByteRing::ByteRing(std::size_t bytes) : bytes_(std::bit_ceil(std::max<std::size_t>(bytes, 1))) {}

void ByteRing::put(std::uint64_t offset, std::span<const std::byte> from) {
  const std::size_t at = offset & (size() - 1);
  const std::size_t first = std::min(from.size(), size() - at);
  if (first > 0) std::memcpy(bytes_.data() + at, from.data(), first);
  if (from.size() > first) std::memcpy(bytes_.data(), from.data() + first, from.size() - first);
}

void ByteRing::get(std::uint64_t offset, std::span<std::byte> into) const {
  const std::size_t at = offset & (size() - 1);
  const std::size_t first = std::min(into.size(), size() - at);
  if (first > 0) std::memcpy(into.data(), bytes_.data() + at, first);
  if (into.size() > first) std::memcpy(into.data() + first, bytes_.data(), into.size() - first);
}

std::span<const std::byte> ByteRing::piece(std::uint64_t offset, std::size_t most) const {
  const std::size_t at = offset & (size() - 1);
  return {bytes_.data() + at, std::min(most, size() - at)};
}

SendBuffer::SendBuffer(std::size_t bytes, std::uint64_t limit)
    : ring_(bytes), limit_(limit), arrived_(kMostPieces), lost_(kMostPieces) {}

std::size_t SendBuffer::write(std::span<const std::byte> bytes) {
  const std::size_t taken =
      std::min({bytes.size(), room(), static_cast<std::size_t>(wire::kFlowBytes - end_)});
  ring_.put(end_, bytes.first(taken));
  end_ += taken;
  return taken;
}

SendBuffer::Piece SendBuffer::next(std::size_t most) const {
  if (!lost_.empty()) {
    const RangeSet::Range& range = lost_.ranges().front();
    return {range.begin, static_cast<std::size_t>(std::min<std::uint64_t>(most, range.end - range.begin)),
            true};
  }
  const std::uint64_t until = std::min(end_, limit_);
  if (next_ >= until) return {};
  return {next_, static_cast<std::size_t>(std::min<std::uint64_t>(most, until - next_)), false};
}

void SendBuffer::get(const Piece& piece, std::byte* into) const {
  ring_.get(piece.offset, {into, piece.length});
}

void SendBuffer::sent(const Piece& piece) {
  if (piece.again)
    lost_.remove(piece.offset, piece.offset + piece.length);
  else
    next_ = piece.offset + piece.length;
}

void SendBuffer::on_arrived(std::uint64_t offset, std::size_t length) {
  const std::uint64_t end = offset + length;
  if (end <= begin_) return;
  lost_.remove(offset, end);
  arrived_.add(std::max(offset, begin_), end);
  if (arrived_.ranges().front().begin != begin_) return;
  begin_ = arrived_.ranges().front().end;
  arrived_.remove_first();
}

// What was sent again meanwhile and has arrived, or is on its way, is not sent a third time.
void SendBuffer::on_lost(std::uint64_t offset, std::size_t length) {
  const std::uint64_t end = offset + length;
  if (end <= begin_) return;
  std::uint64_t from = std::max(offset, begin_);
  for (const RangeSet::Range& known : arrived_.ranges()) {
    if (known.end <= from) continue;
    if (known.begin >= end) break;
    if (known.begin > from) lost_.add(from, known.begin);
    from = known.end;
  }
  if (from < end) lost_.add(from, end);
}

void SendBuffer::on_limit(std::uint64_t limit) {
  limit_ = std::max(limit_, limit);
}

ReceiveBuffer::ReceiveBuffer(std::size_t bytes) : ring_(bytes), arrived_(kMostHoles) {}

ReceiveBuffer::Result ReceiveBuffer::take(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > limit() || bytes.size() > limit() - offset) return Result::no_room;
  const std::uint64_t end = offset + bytes.size();
  const std::uint64_t from = std::max(offset, begin_);
  if (end <= begin_ || arrived_.contains(from, end)) return Result::known;
  // What has come once is not written over, whatever comes again.
  if (!arrived_.empty() && arrived_.ranges().front().begin <= from && arrived_.ranges().front().end > from)
    return take(arrived_.ranges().front().end, bytes.subspan(arrived_.ranges().front().end - offset));
  if (!arrived_.add(from, end)) return Result::too_scattered;
  ring_.put(from, bytes.subspan(from - offset));
  return Result::kept;
}

std::span<const std::byte> ReceiveBuffer::readable() const {
  if (arrived_.empty() || arrived_.ranges().front().begin != begin_) return {};
  return ring_.piece(begin_, static_cast<std::size_t>(arrived_.ranges().front().end - begin_));
}

// The range stays where it began: reading makes it no shorter than it would be if it began here.
void ReceiveBuffer::consumed(std::size_t bytes) {
  arrived_.remove(begin_, begin_ + bytes);
  begin_ += bytes;
}

}  // namespace talweg::protocol
