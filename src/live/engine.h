// Engine: the links of one process and the loop that their handles are in. Polls without blocking, sleeps
// when told to, and can be woken from any thread. Not thread-safe but for `sleep`, which may run while others
// call in, and `wake`.
#pragma once

#include <vector>

#include "live/links.h"
#include "live/loop/event_loop.h"

namespace talweg::live {

struct EngineStatistics {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t shared_bytes = 0;  // of this rank's segment
};

class Engine {
 public:
  Engine(int rank, Mesh mesh, const LinkOptions& options, FrameHandler& handler);

  // As Link::send; a frame to who has gone counts as sent. Sent at the next flush or poll.
  bool send(int peer, OutFrame frame);
  void flush();
  // Moves what can be moved. True if anything did. Where all ranks share this host, sockets, which say that
  // one of them is gone, are looked at now and then, or `thoroughly`.
  bool poll(bool thoroughly = false);
  // Announces sleep to the ranks of this host; false when something has arrived meanwhile, or waits for room.
  bool prepare_sleep();
  // Sleeps until something happens, or `ms` have passed (-1: for ever). Call poll afterwards.
  void sleep(int ms);
  void wake() { loop_.wake(); }
  // Finds machines that no longer answer. While something is waited for it is to be called again after the
  // nanoseconds that it returns.
  std::int64_t check_hosts();
  void cancel(std::uint32_t group, std::uint64_t run);
  // As Link::pace.
  void pace(int peer, double bytes_per_second);
  // An orderly end: tells all peers and gives the kernel a moment to take what is still to be sent.
  void say_goodbye();

  // Something waits to be sent: whoever drives must go on until it is gone.
  bool unsent() const;

  // None of the first `ranks` peers has gone.
  bool whole(int ranks) const;
  bool all_local() const { return links_.size() == local_.size(); }
  int local_ranks() const { return static_cast<int>(local_.size()) + 1; }
  EngineStatistics statistics() const;
  // Of the ranks that have not gone.
  std::vector<PeerStatistics> peer_statistics() const;

 private:
  const std::int64_t host_timeout_ns_;
  EventLoop loop_;
  Links made_;
  std::vector<Link*> links_;  // all of them
  std::vector<Link*> local_;
  std::vector<Link*> dirty_;    // to be flushed
  std::vector<bool> is_dirty_;  // by rank
  unsigned idle_polls_ = 0;
};

}  // namespace talweg::live
