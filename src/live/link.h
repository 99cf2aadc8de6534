// Link: how frames reach one other rank and come from it. An engine knows links and nothing of what they are
// made of; a new kind of link is a folder of its own and a line in links.cc.
//
// What holds of every link, while it is not gone:
//
//   Nothing is lost, doubled or changed. What cannot be brought there, or does not come as it was sent, ends
//   the link.
//   Frames of the same tree and priority arrive in the order in which they were sent; but data of one run, in
//   the order of their progress (protocol/send_queue.h).
//   A more urgent frame may overtake all others. Frames of different trees may overtake each other.
//   Nothing that was sent before a frame with wire::kBehindAll arrives after it, whatever tree and priority.
//   What has been received is handed over before the end of the link is.
//
// A link gets a look when one of its handles is ready (loop/event_loop.h), when poll() is called if it is
// local, and in check_host() some 32 times in the host timeout. It reports to one FrameHandler, only from
// within its own methods and on_ready. All calls come from one thread at a time. Nothing here throws once it
// is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "live/frame_handler.h"
#include "live/out_frame.h"

namespace talweg::live {

struct LinkStatistics {
  std::uint64_t bytes_sent = 0;  // frames with their headers
  std::uint64_t bytes_received = 0;
};

// What the way to a rank has measured of itself; zeros where it cannot.
struct PeerStatistics {
  int rank = 0;
  std::uint64_t retransmits = 0;          // segments sent again
  std::uint32_t round_trip_us = 0;        // smoothed
  std::uint32_t least_round_trip_us = 0;  // of late; 0: not measured
  std::uint64_t acked_bytes = 0;          // that have arrived there
  std::uint64_t resent_bytes = 0;         // once more
  double busy_seconds = 0;       // for which something was on its way there and there was room for it
  bool datagrams = false;        // what is sent now goes in datagrams
  std::uint64_t paths_left = 0;  // times that one of several answered nothing and was left
};

class Link {
 public:
  Link(int peer, FrameHandler& handler) : peer_(peer), handler_(handler) {}
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int peer() const { return peer_; }
  // Said goodbye, or failed: FrameHandler::on_peer_gone has been called. Nothing is sent or received any
  // more, and what waited has been or need not be reported as sent.
  bool gone() const { return gone_; }
  // Frames travel through memory, where no handle tells of them.
  virtual bool local() const { return false; }

  // True when the payload is no longer needed; else FrameHandler::on_sent follows. It leaves at the next
  // flush() at the latest.
  virtual bool send(OutFrame frame) = 0;
  // A full fence has been issued since the last send: a link may look at what the other side says in memory.
  virtual void flush() = 0;
  // Local: hands over what has arrived and sends what waited for room. True if anything moved.
  virtual bool poll() { return false; }
  // Local: tells the other side that it must ring from now on; false when something has arrived meanwhile, or
  // waits for room, of which nobody tells. awake() follows in either case.
  virtual bool prepare_sleep() { return true; }
  virtual void awake() {}
  // Ends the link when the other machine has answered nothing for TcpOptions::host_timeout_ns.
  virtual void check_host() {}
  // What is sent leaves at no more than so many bytes per second from now on; 0: as fast as it can. A link in
  // memory has no pace; of one with several connections each may have all of it.
  virtual void pace([[maybe_unused]] double bytes_per_second) {}
  // Forgets what is unsent of a run, and where something of it is being received to: its memory is not
  // touched after this returns. on_sent has been called for each frame that was dropped.
  virtual void cancel(std::uint32_t group, std::uint64_t run) = 0;
  // Something waits to be sent: flush() or poll() must be called, or handles be looked at, until it is gone.
  virtual bool unsent() const = 0;
  // An orderly end. To be called again until it returns true: the last words have arrived there, or cannot.
  virtual bool part() = 0;

  virtual LinkStatistics statistics() const = 0;
  virtual PeerStatistics measured() const { return {.rank = peer_}; }

 protected:
  // At the first call: tells the handler. Without `failure` the other side has said goodbye.
  void end(std::optional<ErrorCode> failure, const std::string& why) {
    if (std::exchange(gone_, true)) return;
    handler_.on_peer_gone(peer_, failure, why);
  }

  const int peer_;
  FrameHandler& handler_;

 private:
  bool gone_ = false;
};

}  // namespace talweg::live
