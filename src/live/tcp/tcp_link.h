// TcpLink: to a rank of another host, over one or more TCP connections. All frames of a tree use the same
// one.
#pragma once

#include <deque>

#include "live/join/connect.h"
#include "live/link.h"
#include "live/tcp/pulse.h"
#include "live/tcp/stream.h"

namespace talweg::live {

class TcpLink : public Link, private Watcher {
 public:
  TcpLink(Connection connection, const StreamOptions& options, EventLoop& loop, FrameHandler& handler);

  bool send(OutFrame frame) override;
  void flush() override;
  void check_host(std::int64_t patience_ns) override;
  void cancel(std::uint32_t group, std::uint64_t run) override;
  bool unsent() const override;
  bool part() override;
  LinkStatistics statistics() const override;
  PeerStatistics measured() const override;

 private:
  bool on_ready(std::size_t which, bool readable, bool writable) override;
  void settle();
  void lose(std::optional<ErrorCode> failure, const std::string& why);

  std::deque<Stream> streams_;
  std::vector<Pulse> pulses_;  // by stream
  Fence fence_;
};

}  // namespace talweg::live
