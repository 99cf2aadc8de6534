#include "live/tcp/pulse.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "live/system.h"

namespace talweg::live {

namespace {
// One probe may get lost, and the next be long in coming: the kernel probes a full receiver ever less often.
constexpr int kProbes = 3;
}  // namespace

bool Pulse::lost(int socket, std::int64_t patience_ns) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return lost(info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes, info.tcpi_last_ack_recv * kMillisecondNs,
              patience_ns);
}

bool Pulse::lost(bool owes, std::int64_t silence_ns, std::int64_t patience_ns) {
  // Twice: after a pause of this whole machine the last answer is old, and the next one on its way.
  const bool lost = owes && owed_ && silence_ns >= patience_ns;
  owed_ = owes;
  return lost;
}

}  // namespace talweg::live
