#include "live/tcp/pulse.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace talweg::live {

namespace {
// After a pause of this machine silence is long all at once: there must have been time for an answer.
constexpr int kQuestions = 16;
// What the kernel repeats after a second it repeats every second, and always at a bad moment where a link
// comes and goes in time with that.
constexpr std::int64_t kKnockNs = 750'000'000;
constexpr std::size_t kMostKnocks = 8;  // at a time

// Over a link of this machine that is down nothing should be asked: the kernel would look in vain for where
// to send it, and look again only once a second, however soon the link is up.
bool has_carrier(const in_addr& own) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return true;
  bool carrier = true;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
        reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr == own.s_addr)
      carrier = (i->ifa_flags & IFF_RUNNING) != 0;
  ::freeifaddrs(list);
  return carrier;
}
}  // namespace

Pulse::Verdict Pulse::judge(std::int64_t silence_ns, std::int64_t patience_ns) {
  if (silence_ns < patience_ns / 4) {
    asked_ = 0;
    return Verdict::alive;
  }
  if (silence_ns >= patience_ns && asked_ >= kQuestions) return Verdict::lost;
  ++asked_;
  return Verdict::ask;
}

bool Pulse::lost(int socket, std::uint64_t answers, std::int64_t patience_ns) {
  const std::int64_t now = now_ns();
  const bool knocked = std::ranges::any_of(knocks_, [this](Knock& knock) { return answered(knock); });
  if (std::exchange(answers_, answers) != answers || knocked) answered_ns_ = now;
  const Verdict verdict = judge(now - answered_ns_, patience_ns);
  std::erase_if(knocks_, [=](const Knock& knock) {
    return verdict == Verdict::alive || !knock.socket || now - knock.since_ns >= kKnockNs;
  });
  if (verdict == Verdict::ask && knocks_.size() < kMostKnocks) knock(socket, now);
  return verdict == Verdict::lost;
}

// Be it with a refusal.
bool Pulse::answered(Knock& knock) {
  pollfd ready{knock.socket.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(knock.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0 || error == ECONNREFUSED || error == ECONNRESET) return true;
  knock.socket.reset();  // some router's answer, or none
  return false;
}

// What cannot be tried now counts as not answered.
void Pulse::knock(int socket, std::int64_t now) {
  sockaddr_in own{};
  sockaddr_in other{};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return;
  length = sizeof other;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &length) != 0) return;
  if (!has_carrier(own.sin_addr)) return;
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&other), sizeof other);
  if (rc < 0 && errno != EINPROGRESS && errno != ECONNREFUSED) return;
  knocks_.push_back({std::move(fd), now});
}

}  // namespace talweg::live
