// Engine: all peers of one process. Polls without blocking, sleeps when told to, and can be woken from any
// thread. Not thread-safe but for `sleep`, which may run while others call in, and `wake`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "live/connect.h"
#include "live/frame_handler.h"
#include "live/pulse.h"
#include "live/shared_link.h"
#include "live/stream.h"

namespace talweg::live {

struct EngineOptions {
  StreamOptions stream;
  std::int64_t host_timeout_ns =
      15'000'000'000;  // without any answer from a host, until its ranks count as failed
};

struct EngineStatistics {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t shared_bytes = 0;  // of this rank's segment
};

// The connection to one rank that has not gone, as TCP has measured it; zeros where shared memory serves.
struct PeerStatistics {
  int rank = 0;
  std::uint64_t retransmits = 0;    // segments sent again
  std::uint32_t round_trip_us = 0;  // smoothed
  std::uint64_t acked_bytes = 0;    // that have arrived there
  double busy_seconds = 0;          // for which something was on its way there and there was room for it
};

class Engine {
 public:
  Engine(int rank, Mesh mesh, const EngineOptions& options, FrameHandler& handler);
  ~Engine();

  // True when the payload is no longer needed; else FrameHandler::on_sent follows. Sent at the next flush or
  // poll.
  bool send(int peer, OutFrame frame);
  void flush();
  // Moves what can be moved. True if anything did.
  bool poll();
  // Announces sleep to the ranks of this host; false when something has arrived meanwhile, or waits for room.
  bool prepare_sleep();
  // Sleeps until something happens, or `ms` have passed (-1: for ever). Call poll afterwards.
  void sleep(int ms);
  void wake();
  // About once a second while something is waited for: finds machines that no longer answer.
  void check_hosts();
  void cancel(std::uint32_t group, std::uint64_t run);
  // An orderly end: tells all peers and gives the kernel a moment to take what is still to be sent.
  void say_goodbye();

  // Something waits to be sent: whoever drives must go on until it is gone.
  bool unsent() const;

  // No rank has gone.
  bool whole() const;
  // On how many ways, told apart by their trees, frames to a rank may overtake one another.
  std::size_t lanes_to(int peer) const;
  bool all_local() const { return remote_ == 0; }
  int local_ranks() const { return local_ranks_; }
  EngineStatistics statistics() const;
  std::vector<PeerStatistics> peer_statistics() const;

 private:
  struct Peer {
    std::vector<std::unique_ptr<Stream>> streams;
    std::unique_ptr<SharedLink> shared;
    FileDescriptor process;     // of a rank on this host: readable when it has ended
    std::vector<Pulse> pulses;  // by stream, of a rank on another host
    std::vector<bool> polled_for_write;
    bool dirty = false;
    bool gone = true;
  };
  void watch(int peer, std::size_t stream);
  bool poll_sockets();
  void check_gone(int peer);
  void on_process_end(int peer);
  void lose(int peer, const std::string& why);
  void linger(std::int64_t until_ns);
  static void ring(Peer& peer);

  const int rank_;
  const std::int64_t host_timeout_ns_;
  FrameHandler& handler_;
  std::optional<Segment> segment_;
  std::unique_ptr<SharedSender> sender_;
  std::vector<Peer> peers_;
  std::vector<int> shared_;  // peers with a SharedLink
  std::vector<int> dirty_;
  int remote_ = 0;
  int local_ranks_ = 1;
  unsigned idle_polls_ = 0;
  FileDescriptor epoll_;
  FileDescriptor wake_;
};

}  // namespace talweg::live
