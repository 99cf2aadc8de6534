#include "live/tcp/pulse.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace talweg::live {

namespace {
// One probe may get lost, and the next be long in coming: the kernel probes a full receiver ever less often.
constexpr int kProbes = 3;
constexpr std::size_t kMostKnocks = 8;  // at a time
}  // namespace

bool Pulse::lost(int socket, std::int64_t patience_ns) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool owes = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
  const std::int64_t now = now_ns();
  if (answered()) answered_ns_ = now;
  const std::int64_t silence = std::min(info.tcpi_last_ack_recv * kMillisecondNs, now - answered_ns_);
  if (!owes || silence < patience_ns / 2) {
    knocks_.clear();
    return lost(owes, silence, patience_ns);
  }
  if (knocks_.empty()) first_knock_ns_ = now;
  if (knocks_.size() < kMostKnocks) knock(socket);
  // After a pause of this machine silence is long all at once: there must have been time for an answer.
  return lost(owes, silence, patience_ns) && now - first_knock_ns_ >= patience_ns / 4;
}

bool Pulse::lost(bool owes, std::int64_t silence_ns, std::int64_t patience_ns) {
  // Twice: after a pause of this whole machine the last answer is old, and the next one on its way.
  const bool lost = owes && owed_ && silence_ns >= patience_ns;
  owed_ = owes;
  return lost;
}

// Whether a knock was answered, be it with a refusal.
bool Pulse::answered() {
  return std::any_of(knocks_.begin(), knocks_.end(), [](FileDescriptor& knock) {
    pollfd ready{knock.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return false;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(knock.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 || error == ECONNREFUSED || error == ECONNRESET) return true;
    knock.reset();  // some router's answer, or none
    return false;
  });
}

// What cannot be tried now counts as not answered.
void Pulse::knock(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  FileDescriptor fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) {
    const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length);
    if (rc < 0 && errno != EINPROGRESS && errno != ECONNREFUSED) fd.reset();
  }
  knocks_.push_back(std::move(fd));
}

}  // namespace talweg::live
