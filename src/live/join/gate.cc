#include "live/join/gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/fail.h"

namespace talweg::live {

namespace {

constexpr std::uint64_t kListeners = 1ULL << 63;  // numbers from here on are listeners
constexpr int kGateEvents = 64;
constexpr int kAcceptsAtOnce = 64;     // before those who are inside get their turn
constexpr int kAcceptsInSweep = 4096;  // all that a listener's backlog holds
constexpr std::int64_t kReportEveryNs = 5'000'000'000;
constexpr std::int64_t kPauseNs = 100'000'000;
constexpr std::int64_t kIdleEveryNs = 100'000'000;
constexpr std::int64_t kRetryNs = 10'000'000;

std::string to_text(std::uint32_t address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

bool watch(const FileDescriptor& epoll, int operation, const FileDescriptor& socket, std::uint32_t events,
           std::uint64_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  return ::epoll_ctl(epoll.get(), operation, socket.get(), &event) == 0;
}

}  // namespace

Gate::Gate(const wire::Secret& key, Wanted wanted, Logger log)
    : key_(key),
      wanted_(std::move(wanted)),
      log_(std::move(log)),
      ephemeral_(wire::draw_ephemeral_key()),
      epoll_(check(::epoll_create1(EPOLL_CLOEXEC), "creating an epoll instance")) {}

Gate::~Gate() {
  const std::uint64_t rest = counts_.strangers() - reported_;
  if (rest > 0) log_.log(LogLevel::info, "net", "{} more strange connections were dropped", rest);
}

void Gate::listen(FileDescriptor listener, bool local) {
  check(watch(epoll_, EPOLL_CTL_ADD, listener, EPOLLIN, kListeners + listeners_.size()) ? 0 : -1,
        "watching a listener");
  listeners_.push_back({std::move(listener), local});
}

std::int64_t Gate::next_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  if (!guests_.empty()) next = guests_.begin()->second.until;
  return paused_until_ > 0 ? std::min(next, paused_until_) : next;
}

std::vector<Visitor> Gate::step(std::int64_t now) {
  std::vector<Visitor> admitted;
  std::array<epoll_event, kGateEvents> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), kGateEvents, 0);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
    // A guest may have been pushed out by a newcomer of this very step.
    if (const auto guest = guests_.find(number); guest != guests_.end()) hear(guest, admitted);
    if (number >= kListeners)
      accept_from(*std::next(listeners_.begin(), static_cast<std::ptrdiff_t>(number - kListeners)), now,
                  kAcceptsAtOnce);
  }
  expire(now);
  return admitted;
}

void Gate::sweep(std::int64_t now) {
  for (Listener& listener : listeners_) accept_from(listener, now, kAcceptsInSweep);
  expire(now);
}

void Gate::accept_from(Listener& listener, std::int64_t now, int most) {
  for (int i = 0; i < most && paused_until_ == 0; ++i) {
    sockaddr_in from{};  // a Unix socket's address says nothing, and is cut off
    socklen_t length = sizeof from;
    FileDescriptor socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&from), &length,
                                    SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EINTR) {
        trouble_ = std::strerror(errno);
        pause(now);
      }
      return;
    }
    if (guests_.size() >= kMaxHalfOpen)
      drop(guests_.begin(), counts_.pushed_out, "it had not proved itself when others came");
    const std::uint64_t number = next_number_++;
    if (!watch(epoll_, EPOLL_CTL_ADD, socket, EPOLLIN, number)) continue;
    guests_.try_emplace(guests_.end(), number,
                        Guest{std::move(socket),
                              now + kPatienceNs,
                              wire::Acceptor(key_, ephemeral_),
                              {},
                              0,
                              from.sin_addr.s_addr,
                              listener.local});
  }
}

// Out of descriptors, the listener stays readable: looking again at once would only burn a core.
void Gate::pause(std::int64_t now) {
  if (!guests_.empty()) drop(guests_.begin(), counts_.pushed_out, "the process is out of descriptors");
  paused_until_ = now + kPauseNs;
  watch_listeners(0);
}

void Gate::resume(std::int64_t now) {
  if (paused_until_ == 0 || now < paused_until_) return;
  paused_until_ = 0;
  watch_listeners(EPOLLIN);
}

void Gate::watch_listeners(std::uint32_t events) {
  std::uint64_t number = kListeners;
  for (const Listener& l : listeners_) watch(epoll_, EPOLL_CTL_MOD, l.socket, events, number++);
}

void Gate::expire(std::int64_t now) {
  resume(now);
  while (!guests_.empty() && guests_.begin()->second.until <= now)
    drop(guests_.begin(), counts_.silent, "it did not prove itself in time");
}

void Gate::hear(Guests::iterator at, std::vector<Visitor>& admitted) {
  Guest& guest = at->second;
  const std::size_t wants = guest.acceptor.wants();
  // Never more than is wanted: what comes behind is for whoever gets the socket.
  const ssize_t n =
      ::recv(guest.socket.get(), guest.input.data() + guest.got, wants - guest.got, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return drop(at, counts_.refused, "it left before it had proved itself");
  guest.got += static_cast<std::size_t>(n);
  if (guest.got < wants) return;
  guest.got = 0;
  const wire::HandshakeStep step = guest.acceptor.take({guest.input.data(), wants}, wanted_);
  // A few dozen bytes always fit into a new connection's buffer.
  const auto size = static_cast<ssize_t>(step.reply.size());
  const bool sent =
      ::send(guest.socket.get(), step.reply.data(), step.reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == size;
  if (step.state == wire::HandshakeStep::State::refused)
    return drop(at, counts_.refused, wire::to_string(step.why));
  if (!sent) return drop(at, counts_.refused, "it does not read what it is told");
  if (step.state == wire::HandshakeStep::State::more) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guest.socket.get(), nullptr);
  ++counts_.admitted;
  trouble_.clear();
  admitted.push_back(
      {std::move(guest.socket), guest.acceptor.introduction(), guest.acceptor.secrets(), guest.local});
  guests_.erase(at);
}

void Gate::drop(Guests::iterator guest, std::atomic<std::uint64_t>& count, const char* why) {
  ++count;
  report(why, guest->second);
  guests_.erase(guest);
}

void Gate::report(const char* why, const Guest& guest) {
  const std::int64_t now = now_ns();
  if (last_report_ns_ != 0 && now - last_report_ns_ < kReportEveryNs) return;
  const std::uint64_t all = counts_.strangers();
  log_.log(LogLevel::warn, "net", "dropped a connection from {}: {} ({} in all)",
           guest.local ? "this host" : to_text(guest.address), why, all);
  reported_ = all;
  last_report_ns_ = now;
}

namespace {

void receive_while_idling(const FileDescriptor& socket, std::byte* data, std::size_t bytes,
                          std::int64_t deadline_ns, const std::function<void()>& idle) {
  while (!wait_ready(socket, false, std::min(deadline_ns, now_ns() + kIdleEveryNs)) && now_ns() < deadline_ns)
    if (idle) idle();
  receive_all(socket, data, bytes, deadline_ns);
}

[[noreturn]] void throw_refused(const wire::HandshakeStep& step, const wire::Initiator& initiator,
                                const char* key_advice) {
  if (step.why == wire::Refusal::version)
    throw_error(ErrorCode::version,
                "it speaks protocol version {}, this side speaks {}: install the same version everywhere",
                initiator.other_version(), wire::kProtocolVersion);
  if (step.why == wire::Refusal::wrong_key) refuse("{}: {}", wire::to_string(step.why), key_advice);
  refuse("refused: {}", wire::to_string(step.why));
}

}  // namespace

Visitor knock(const std::function<FileDescriptor()>& connect, const wire::Secret& key,
              const wire::Introduction& introduction, std::int64_t deadline_ns,
              const std::function<void()>& idle, const char* key_advice) {
  const wire::EphemeralKey ephemeral = wire::draw_ephemeral_key();
  for (;;) {
    FileDescriptor socket = connect();
    wire::Initiator initiator(key, introduction, ephemeral);
    try {
      send_all(socket, initiator.hello().data(), initiator.hello().size(), deadline_ns);
      for (;;) {
        std::array<std::byte, wire::kChallengeBytes> input;
        const std::size_t wants = initiator.wants();
        receive_while_idling(socket, input.data(), wants, deadline_ns, idle);
        const wire::HandshakeStep step = initiator.take({input.data(), wants});
        if (step.state == wire::HandshakeStep::State::refused) throw_refused(step, initiator, key_advice);
        if (step.state == wire::HandshakeStep::State::done)
          return {std::move(socket), introduction, initiator.secrets(), false};
        send_all(socket, step.reply.data(), step.reply.size(), deadline_ns);
      }
    } catch (const Error& e) {
      if (e.code() != ErrorCode::peer_failed || now_ns() + kRetryNs > deadline_ns) throw;
    }
    ::usleep(kRetryNs / 1000);
    if (idle) idle();
  }
}

}  // namespace talweg::live
