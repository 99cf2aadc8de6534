// Strange connections at a steady rate until it is told to end: strangers ADDRESS PORT PER_SECOND
// They say nothing, noise, or the beginning of something, and leave at once or stay. Prints how many there
// were that found somebody listening, and the seconds from the first of these to the last.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "live/system.h"
#include "talweg/error.h"

namespace {
volatile sig_atomic_t over = 0;
}

int main(int argc, char** argv) {
  using namespace talweg;
  if (argc != 4) {
    std::fputs("usage: strangers ADDRESS PORT PER_SECOND\n", stderr);
    return 2;
  }
  ::signal(SIGTERM, [](int) { over = 1; });
  const live::Endpoint target{argv[1], std::atoi(argv[2])};
  const std::int64_t pause = 1'000'000'000 / std::atoi(argv[3]);
  constexpr std::size_t kStaying = 200;
  Random random{1};
  std::vector<live::FileDescriptor> staying(kStaying);
  long connections = 0;
  std::int64_t first = 0, last = 0;
  for (std::int64_t next = live::now_ns(); over == 0; next += pause) {
    if (const std::int64_t left = next - live::now_ns(); left > 0)
      ::usleep(static_cast<useconds_t>(left / 1000));
    try {
      live::FileDescriptor socket = live::connect_tcp(target, live::now_ns() + 200'000'000);
      std::string noise(random.below(200), '\0');
      for (char& c : noise) c = static_cast<char>(random.below(256));
      ::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      last = live::now_ns();
      if (connections++ == 0) first = last;
      if (random.below(4) == 0) staying[random.below(kStaying)] = std::move(socket);
    } catch (const Error&) {
      ::usleep(1000);  // nobody listens, yet or any more
    }
  }
  std::printf("%ld %.6f\n", connections, static_cast<double>(last - first) / 1e9);
}
