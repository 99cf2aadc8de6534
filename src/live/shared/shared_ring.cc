#include "live/shared/shared_ring.h"

#include <cstring>
#include <utility>

namespace talweg::live {

namespace {
constexpr std::uint32_t kReceiveBudgetFrames = 32;  // before other peers get their turn
constexpr std::uint64_t kPublishEvery =
    64;  // entries taken between two updates of the tail that the writer reads
}  // namespace

void SharedSender::forget_last() {
  if (last.block != kNoBlock) segment.readers(last.block).fetch_sub(1, std::memory_order_release);
  last = {};
}

SharedRing::SharedRing(SharedSender& sender, Segment theirs, int own_local, int peer_local)
    : sender_(sender),
      theirs_(std::move(theirs)),
      out_(theirs_.ring(own_local)),
      out_tail_(theirs_.tail(own_local)),
      in_(sender.segment.ring(peer_local)),
      in_tail_(sender.segment.tail(peer_local)) {}

bool SharedRing::note_returned() {
  const std::uint64_t used = out_tail_.used.load(std::memory_order_acquire);
  if (written_ - used > kEntries) return false;
  for (; known_used_ < used; ++known_used_)
    if (const std::uint32_t block = lent_[known_used_ % kEntries]; block != kNoBlock)
      --held_[block >= kSmall.blocks ? 1 : 0];
  return true;
}

bool SharedRing::may_lend(std::size_t bytes) {
  const std::size_t& held = held_[needs_large(bytes) ? 1 : 0];
  if (sender_.pool.may_lend(bytes, held)) return true;
  // Where its reader has come to is a cache line that it writes all the time: not looked at without need.
  note_returned();
  return sender_.pool.may_lend(bytes, held);
}

// A block that others read already: how many are free says nothing then.
bool SharedRing::may_share(std::size_t bytes) {
  const std::size_t& held = held_[needs_large(bytes) ? 1 : 0];
  const std::size_t most = (needs_large(bytes) ? kLarge : kSmall).blocks * 3 / 4;
  return held < most || (note_returned() && held < most);
}

// Copies the payload into a block, or finds it in the one copied last. kNoBlock: too many are being read.
std::uint32_t SharedRing::place_payload(const OutFrame& frame) {
  const wire::Header& h = frame.header;
  SharedPayload& last = sender_.last;
  const bool same = frame.stable && last.block != kNoBlock && last.type == h.type &&
                    last.data == frame.bytes() && last.bytes == h.length && last.group == h.group &&
                    last.run == frame.token.run;
  if (same) {
    if (!may_share(h.length)) return kNoBlock;
    sender_.segment.readers(last.block).fetch_add(1, std::memory_order_relaxed);
    return last.block;
  }
  if (!may_lend(h.length)) return kNoBlock;
  const std::uint32_t block = sender_.pool.take(h.length);
  if (block == kNoBlock) return kNoBlock;
  std::memcpy(sender_.segment.block(block), frame.bytes(), h.length);
  sender_.segment.readers(block).store(frame.stable ? 2 : 1, std::memory_order_relaxed);
  sender_.pool.lend(block);
  if (frame.stable) {
    sender_.forget_last();
    last = {h.type, frame.bytes(), h.length, h.group, frame.token.run, block};
  }
  return block;
}

bool SharedRing::write(const OutFrame& frame) {
  if (written_ - known_taken_ >= kEntries) {
    known_taken_ = out_tail_.taken.load(std::memory_order_acquire);
    if (written_ - known_taken_ >= kEntries) return false;
  }
  // What the entry that this one replaces lent must have been looked at.
  if (written_ - known_used_ >= kEntries && (!note_returned() || written_ - known_used_ >= kEntries))
    return false;
  const std::uint32_t length = frame.header.length;
  std::uint32_t block = kNoBlock;
  if (length > kInline) {
    block = place_payload(frame);
    if (block == kNoBlock) return false;
  }
  lent_[written_ % kEntries] = block;
  if (block != kNoBlock) ++held_[block >= kSmall.blocks ? 1 : 0];
  Entry& entry = out_[written_ % kEntries];
  entry.header = frame.header;
  entry.block = block;
  if (block == kNoBlock && length > 0) std::memcpy(entry.payload, frame.bytes(), length);
  entry.stamp.store(++written_, std::memory_order_release);
  bytes_sent_ += sizeof(wire::Header) + length;
  return true;
}

bool SharedRing::push(OutFrame frame) {
  if (queue_.empty() && write(frame)) return true;
  frame.token.progress = 0;  // in order: what was summed last is still in the cache, and no link is slow here
  queue_.push(std::move(frame));
  return false;
}

bool SharedRing::flush(FrameHandler& handler) {
  bool any = false;
  while (!queue_.empty() && write(queue_.front())) {
    const OutFrame frame = queue_.pop();
    any = true;
    if (!frame.reported) handler.on_sent(frame.header.group, frame.token);
  }
  return any;
}

bool SharedRing::something_arrived() const {
  return in_[read_ % kEntries].stamp.load(std::memory_order_acquire) == read_ + 1;
}

bool SharedRing::receive(int peer, FrameHandler& handler) {
  std::uint32_t budget = kReceiveBudgetFrames;
  while (budget > 0 && something_arrived()) {
    --budget;
    const Entry& entry = in_[read_ % kEntries];
    const std::uint32_t block = entry.block;
    const wire::Header header = entry.header;  // a copy: what was checked is what is used
    const bool inlined = block == kNoBlock;
    const std::size_t room = inlined ? kInline : (block < kBlocks ? Segment::block_bytes(block) : 0);
    if (wire::check(header) != nullptr || header.length > room) {
      broken_ = true;
      return false;
    }
    const std::byte* payload = inlined ? entry.payload : theirs_.block(block);
    bytes_received_ += sizeof(wire::Header) + header.length;
    handler.on_frame(peer, header, payload);
    ++read_;
    // First: whoever is killed between the two leaves a block that is lent for ever, not one that is given
    // back twice.
    in_tail_.used.store(read_, std::memory_order_relaxed);
    if (!inlined) theirs_.readers(block).fetch_sub(1, std::memory_order_release);
    if (read_ - published_ >= kPublishEvery) {
      in_tail_.taken.store(read_, std::memory_order_release);
      published_ = read_;
    }
  }
  return budget < kReceiveBudgetFrames;
}

void SharedRing::cancel(std::uint32_t group, std::uint64_t run, FrameHandler& handler) {
  queue_.cancel(group, run, [&](const OutFrame& frame) { handler.on_sent(frame.header.group, frame.token); });
}

void SharedRing::forget(FrameHandler& handler) {
  while (!queue_.empty()) {
    const OutFrame frame = queue_.pop();
    if (!frame.reported) handler.on_sent(frame.header.group, frame.token);
  }
  if (std::exchange(forgotten_, true)) return;
  if (!note_returned()) return;
  for (; known_used_ != written_; ++known_used_)
    if (const std::uint32_t block = lent_[known_used_ % kEntries]; block != kNoBlock)
      sender_.segment.readers(block).fetch_sub(1, std::memory_order_release);
}

bool SharedRing::must_wake() {
  std::atomic<std::uint32_t>& sleeping = theirs_.doorbell().sleeping;
  return sleeping.load(std::memory_order_relaxed) != 0 &&
         sleeping.exchange(0, std::memory_order_acq_rel) != 0;
}

}  // namespace talweg::live
