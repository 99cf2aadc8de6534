// SwitchUplink: a switch's connection to the one above it, for one job of which it is a part there
// (switch_jobs.h). Never blocks: it connects in a thread of its own.
//
//   SwitchUplink uplink(address, key, request, wake);     // wake: an eventfd, written once it has connected
//   poll uplink.fd(), if it is not -1, and wake; then
//   for (const wire::SwitchMessage& message : uplink.hear()) ...
//   uplink.say(message); uplink.part();
//
// Whatever goes wrong is one more message, the last: SwitchRefused. A machine that has fallen silent is
// noticed by workers, whose sums do not end, as that of any switch is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "live/aggregation/switch_line.h"
#include "live/join/gate.h"
#include "live/system.h"
#include "wire/key.h"
#include "wire/switch_message.h"

namespace talweg::live {

class SwitchUplink {
 public:
  // `wake` must outlive it.
  SwitchUplink(const Endpoint& address, const wire::Secret& key, const wire::SwitchJoin& request,
               const FileDescriptor& wake);
  ~SwitchUplink();  // may wait for a moment until its thread ends; not once may_end()
  SwitchUplink(const SwitchUplink&) = delete;
  SwitchUplink& operator=(const SwitchUplink&) = delete;

  int fd() const { return line_ ? line_->socket().get() : -1; }
  bool writes() const { return line_ && line_->unsent() > 0; }
  // What has come, in order; sends what waits.
  std::vector<wire::SwitchMessage> hear();
  // Whether this is within what was asked for.
  bool may_open(const wire::SwitchOpened& opened) const;
  void say(const wire::SwitchMessage& message);
  // Ends the connection; what was said before still goes.
  void part();
  bool may_end() const { return connected_; }

  // Of what is said to a switch above that does not read it.
  static constexpr std::size_t kMostUnread = std::size_t{64} << 10;
  // Of its thread while it connects, about, and of the connection, in bytes.
  static constexpr std::size_t kBytes = (std::size_t{64} << 10) + kMostUnread + wire::kMaxSwitchReason + 8192;

 private:
  void connect(const Endpoint& address, const wire::Secret& key);
  bool stalled() const { return line_->unsent() > kMostUnread; }

  const wire::SwitchJoin request_;
  const FileDescriptor& wake_;
  std::atomic<bool> over_{false};
  std::atomic<bool> connected_{false};  // or it has failed
  std::optional<Visitor> visitor_;      // these two are the thread's until connected_
  std::optional<wire::SwitchRefused> failure_;
  std::optional<SwitchLine> line_;
  bool ended_ = false;  // nothing more comes
  std::thread thread_;
};

}  // namespace talweg::live
