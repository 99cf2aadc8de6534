#include "observe/dump_signal.h"

#include <atomic>
#include <csignal>

#include "base/fail.h"

namespace talweg::observe {

namespace {

// The one thing a handler may touch, and the one variable of this program that no object owns: a handler has
// no argument to find its owner by. Every World compares it with what it has seen.
std::atomic<unsigned> caught{0};
static_assert(std::atomic<unsigned>::is_always_lock_free, "a signal handler may not take a lock");

void on_signal(int /*signal*/) {
  caught.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int parse_dump_signal(std::string_view text) {
  if (text.starts_with("SIG")) text.remove_prefix(3);
  if (text == "USR1") return SIGUSR1;
  if (text == "USR2") return SIGUSR2;
  if (text == "none") return 0;
  refuse("TALWEG_DUMP_SIGNAL: expected USR1, USR2 or none, got \"{}\"", text);
}

void catch_dump_signal(int signal) {
  struct sigaction now {};
  if (::sigaction(signal, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  ::sigaction(signal, &ours, nullptr);
}

unsigned dump_signals() {
  return caught.load(std::memory_order_relaxed);
}

}  // namespace talweg::observe
