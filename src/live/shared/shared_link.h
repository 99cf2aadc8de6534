// SharedLink: to a rank of this host, through memory that both share. A Unix stream between the two is the
// doorbell of who sleeps, and tells of the other's end.
#pragma once

#include <memory>

#include "live/join/connect.h"
#include "live/link.h"
#include "live/shared/shared_ring.h"
#include "live/tcp/stream.h"

namespace talweg::live {

class SharedLink : public Link, private Watcher {
 public:
  // `sender` is this rank's own side, common to its links on this host, among whose ranks it is number
  // `own_local`.
  SharedLink(Connection connection, std::shared_ptr<SharedSender> sender, int own_local, EventLoop& loop,
             FrameHandler& handler);

  bool local() const override { return true; }
  bool send(OutFrame frame) override;
  void flush() override;
  bool poll() override;
  bool prepare_sleep() override;
  void awake() override;
  void cancel(std::uint32_t group, std::uint64_t run) override;
  bool unsent() const override;
  bool part() override;
  LinkStatistics statistics() const override;

 private:
  bool on_ready(std::size_t which, bool readable, bool writable) override;
  void on_process_end();
  void ring_bell();
  bool receive_ring();
  void settle();
  void lose(std::optional<ErrorCode> failure, const std::string& why);

  const std::shared_ptr<SharedSender> sender_;
  SharedRing ring_;
  FileDescriptor
      process_;  // readable when it has ended: a child that it has forked may hold its sockets open
  Stream bell_;
  EventLoop& loop_;
  EventLoop::Handle process_handle_ = 0;
};

}  // namespace talweg::live
