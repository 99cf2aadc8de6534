#include "fabric/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/fail.h"
#include "fabric/child.h"
#include "fabric/warden.h"

namespace talweg::fabric {

namespace {

using Clock = std::chrono::steady_clock;

// While it lives, the signals that end programs arrive as data on fd().
class SignalTrap {
 public:
  SignalTrap() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
    if (pthread_sigmask(SIG_BLOCK, &set, &before_) != 0) throw_system("block signals");
    fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw_system("watch for signals");
  }
  ~SignalTrap() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalTrap(const SignalTrap&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& before() const { return before_; }
  std::optional<int> take() const {
    signalfd_siginfo info;
    if (read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

// One launch: the loop over signals, ends, output and deadlines.
class Launch {
 public:
  Launch(const std::vector<Process>& processes, const LaunchOptions& options)
      : options_(options), warden_(processes.size(), options.files) {
    children_.reserve(processes.size());
    for (const Process& process : processes)
      children_.emplace_back(process, options, trap_.before(), warden_);
    if (options.timeout.count() > 0) deadline_ = Clock::now() + options.timeout;
  }

  LaunchResult run() {
    while (running(Kind::rank) > 0) step();
    if (running(Kind::aggregator) > 0) stop_all();
    while (running(Kind::aggregator) > 0) step();
    dismiss_carriers();
    drain();
    for (Child& child : children_)
      for (const Child::Stream* stream : {&child.out(), &child.err()})
        if (stream->lost != 0 && result_.exit_code == 0)
          result_ = {1, -1,
                     fmt::format("cannot write what {} printed: {}", child.who(), strerror(stream->lost))};
    return result_;
  }

 private:
  enum class Kind { rank, aggregator, carrier };
  static Kind kind_of(const Child& child) {
    return child.carries() ? Kind::carrier : child.aggregates() ? Kind::aggregator : Kind::rank;
  }

  std::ptrdiff_t running(Kind kind) const {
    return std::ranges::count_if(children_, [&](const Child& c) { return !c.ended() && kind_of(c) == kind; });
  }

  void signal_all(int signal, bool carriers = false) {
    for (const Child& child : children_)
      if (!child.ended() && child.carries() == carriers) child.kill_group(signal);
  }

  void dismiss_carriers() {
    if (running(Kind::carrier) == 0) return;
    dismissed_ = true;
    signal_all(SIGTERM, true);
    kill_at_ = Clock::now() + options_.grace;
    while (running(Kind::carrier) > 0) step();
  }

  void step() {
    std::vector<pollfd> polled = {{trap_.fd(), POLLIN, 0}};
    for (Child& child : children_) {  // poll() skips negative descriptors
      polled.push_back({child.ended() ? -1 : child.pidfd(), POLLIN, 0});
      polled.push_back({child.out().from.get(), POLLIN, 0});
      polled.push_back({child.err().from.get(), POLLIN, 0});
    }
    poll(polled.data(), polled.size(), milliseconds_to_wait());
    // Output first: a rank's last words come before the news of its end.
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (polled[3 * i + 2].revents != 0) pump(children_[i].out());
      if (polled[3 * i + 3].revents != 0) pump(children_[i].err());
    }
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (polled[3 * i + 1].revents != 0) ended(i);
    if (polled[0].revents != 0) forward_signals();
    check_deadlines();
  }

  void pump(Child::Stream& stream) {
    if (!Child::pump(stream, options_.prefix)) stream.from.reset();
  }

  void ended(std::size_t i) {
    const Child& child = children_[i];
    children_[i].note_end();
    const bool lost = child.carries() && !dismissed_;  // whatever its exit code
    if ((child.exit_code() == 0 && !lost) || result_.exit_code != 0 || child.aggregates()) return;
    result_.exit_code = std::max(child.exit_code(), 1);
    result_.first_failed = static_cast<int>(i);
    result_.what = child.how_it_ended();
    if (lost) result_.what += ", and with it what ranks need";
    if (interrupted_) result_.what += fmt::format(" after SIG{} was forwarded", sigabbrev_np(*interrupted_));
    stop_all();
  }

  // Ranks that were interrupted know already: a second signal could cut their cleaning up short.
  void stop_all() {
    if (!interrupted_) signal_all(SIGTERM);
    if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
  }

  void forward_signals() {
    while (const std::optional<int> signal = trap_.take()) {
      signal_all(interrupted_ ? SIGKILL : *signal);
      if (!interrupted_) interrupted_ = signal;
    }
  }

  void check_deadlines() {
    const Clock::time_point now = Clock::now();
    if (deadline_ && now >= *deadline_ && !kill_at_) {
      std::string waited_for;
      for (std::size_t i = 0; i < children_.size(); ++i)
        if (!children_[i].ended() && kind_of(children_[i]) == Kind::rank)
          waited_for += (waited_for.empty() ? "" : ", ") + children_[i].label();
      result_.exit_code = kTimeoutExitCode;
      result_.what = fmt::format("timeout after {} s, still running: rank {}",
                                 std::chrono::duration<double>(options_.timeout).count(), waited_for);
      stop_all();
    }
    if (kill_at_ && now >= *kill_at_) {
      signal_all(SIGKILL, dismissed_);
      kill_at_ = Clock::time_point::max();
    }
  }

  int milliseconds_to_wait() const {
    std::optional<Clock::time_point> next = kill_at_ ? kill_at_ : deadline_;
    if (!next || *next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }

  // What is in the pipes after all have ended. A pipe that something in the background still holds open is
  // not waited for: the background goes when the children are reaped.
  void drain() {
    for (Child& child : children_) {
      child.kill_group(SIGKILL);
      for (Child::Stream* stream : {&child.out(), &child.err()}) {
        pollfd polled{stream->from.get(), POLLIN, 0};
        while (stream->from && poll(&polled, 1, 0) > 0) pump(*stream), polled.fd = stream->from.get();
      }
    }
  }

  LaunchOptions options_;
  SignalTrap trap_;
  std::vector<Child> children_;  // reaped after the warden is gone: until then their numbers are taken
  Warden warden_;
  std::optional<Clock::time_point> deadline_, kill_at_;
  std::optional<int> interrupted_;
  bool dismissed_ = false;  // carriers were
  LaunchResult result_;
};

}  // namespace

LaunchResult launch(const std::vector<Process>& processes, const LaunchOptions& options) {
  if (processes.empty()) refuse("cannot launch: no ranks to start");
  return Launch(processes, options).run();
}

}  // namespace talweg::fabric
