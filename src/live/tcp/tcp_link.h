// TcpLink: to a rank of another host, over one or more TCP connections. All frames of a tree use the same
// one.
#pragma once

#include <deque>

#include "live/join/connect.h"
#include "live/link.h"
#include "live/tcp/pulse.h"
#include "live/tcp/stream.h"
#include "live/tcp/tcp_traffic.h"

namespace talweg::live {

struct TcpOptions {
  StreamOptions stream;
  // Without any answer from a host, until its ranks count as failed.
  std::int64_t host_timeout_ns = 15'000'000'000;
};

class TcpLink : public Link, private Watcher {
 public:
  TcpLink(Connection connection, const TcpOptions& options, EventLoop& loop, FrameHandler& handler);

  bool send(OutFrame frame) override;
  void flush() override;
  void check_host() override;
  void pace(double bytes_per_second) override;
  void cancel(std::uint32_t group, std::uint64_t run) override;
  bool unsent() const override;
  bool part() override;
  LinkStatistics statistics() const override;
  PeerStatistics measured() const override;

  // What each of its streams has carried.
  std::size_t streams() const { return streams_.size(); }
  TcpTraffic traffic(std::size_t stream) const;
  // Hands over all that is there.
  void drain();
  // Ends it; the handler is told as of a goodbye.
  void abandon() {
    if (!gone()) lose(std::nullopt, {});
  }

 private:
  bool on_ready(std::size_t which, bool readable, bool writable) override;
  void settle();
  void lose(std::optional<ErrorCode> failure, const std::string& why);

  std::deque<Stream> streams_;
  const std::int64_t host_timeout_ns_;
  Pulse pulse_;
  Fence fence_;
};

}  // namespace talweg::live
