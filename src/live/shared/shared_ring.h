// SharedRing: frames to and from one rank of the same host, through shared memory.
#pragma once

#include <array>
#include <cstdint>

#include "live/frame_handler.h"
#include "live/out_frame.h"
#include "live/shared/segment.h"

namespace talweg::live {

// The payload copied into the pool last: sent to several ranks it is copied once. Only what its owner calls
// stable is kept, and only until the end of a flush.
struct SharedPayload {
  wire::FrameType type = wire::FrameType::wake;
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t group = 0;
  std::uint64_t run = 0;
  std::uint32_t block = kNoBlock;
};

// The outgoing side's common state of one rank: its segment, its pool, what was copied last.
struct SharedSender {
  explicit SharedSender(Segment own) : segment(std::move(own)), pool(segment) {}
  Segment segment;
  BlockPool pool;
  SharedPayload last;

  void forget_last();
};

class SharedRing {
 public:
  // `local` numbers: of this rank and of the peer among the ranks of the host.
  SharedRing(SharedSender& sender, Segment theirs, int own_local, int peer_local);

  // True when the frame is on its way and its payload no longer needed; else it is kept.
  bool push(OutFrame frame);
  // Tries again what was kept. True if anything moved.
  bool flush(FrameHandler& handler);
  bool backlog() const { return !queue_.empty(); }
  // Hands over what `peer` has written, up to a budget. True if anything was there.
  bool receive(int peer, FrameHandler& handler);
  bool something_arrived() const;
  // The peer's memory holds what cannot be: nothing more may be read.
  bool broken() const { return broken_; }
  void cancel(std::uint32_t group, std::uint64_t run, FrameHandler& handler);
  // The peer has left or its process has ended: what still waits counts as sent, and blocks that it has not
  // read are free again. Once is enough.
  void forget(FrameHandler& handler);
  // True once for each time the peer went to sleep: the caller must then wake it.
  bool must_wake();

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  bool write(const OutFrame& frame);
  bool may_lend(std::size_t bytes);
  bool may_share(std::size_t bytes);
  // False where what the reader wrote about it cannot be.
  bool note_returned();
  std::uint32_t place_payload(const OutFrame& frame);

  SharedSender& sender_;
  Segment theirs_;
  Entry* const out_;  // our ring in the peer's segment
  RingTail& out_tail_;
  Entry* const in_;  // the peer's ring in ours
  RingTail& in_tail_;
  std::uint64_t written_ = 0;
  std::uint64_t known_taken_ = 0;
  std::uint64_t known_used_ = 0;
  std::array<std::uint32_t, kEntries> lent_{};  // by entry: the block that it names
  std::array<std::size_t, 2> held_{};           // small, large: lent and not known to be given back
  std::uint64_t read_ = 0;
  std::uint64_t published_ = 0;
  SendQueue queue_;
  bool broken_ = false;
  bool forgotten_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace talweg::live
