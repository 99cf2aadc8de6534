// Strange connections at a steady rate until it is told to end: strangers ADDRESS PORT PER_SECOND
// They say nothing, noise, or the beginning of something, and leave at once or stay. Several are under way at
// once: over a link that is full each takes milliseconds. Prints how many there were that found somebody
// listening, and the seconds from the first of these to the last.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "live/system.h"
#include "talweg/error.h"

namespace {

using namespace talweg;

constexpr int kAtOnce = 16;
constexpr std::size_t kStaying = 200 / kAtOnce;

volatile sig_atomic_t over = 0;

struct Came {
  long connections = 0;
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_ns = 0;
};

// One after the other, the first after `start_ns`.
Came come(const live::Endpoint& target, std::int64_t start_ns, std::int64_t pause_ns, std::uint64_t seed) {
  Random random{seed};
  std::vector<live::FileDescriptor> staying(kStaying);
  Came came;
  for (std::int64_t next = start_ns; over == 0; next += pause_ns) {
    if (const std::int64_t left = next - live::now_ns(); left > 0)
      ::usleep(static_cast<useconds_t>(left / 1000));
    try {
      live::FileDescriptor socket = live::connect_tcp(target, live::now_ns() + 200'000'000);
      std::string noise(random.below(200), '\0');
      for (char& c : noise) c = static_cast<char>(random.below(256));
      ::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      came.last_ns = live::now_ns();
      if (came.connections++ == 0) came.first_ns = came.last_ns;
      if (random.below(4) == 0) staying[random.below(kStaying)] = std::move(socket);
    } catch (const Error&) {
      ::usleep(1000);  // nobody listens, yet or any more
    }
  }
  return came;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: strangers ADDRESS PORT PER_SECOND\n", stderr);
    return 2;
  }
  ::signal(SIGTERM, [](int) { over = 1; });
  const live::Endpoint target{argv[1], std::atoi(argv[2])};
  const std::int64_t pause = 1'000'000'000 / std::atoi(argv[3]);
  const std::int64_t start = live::now_ns();
  std::vector<std::future<Came>> queues;
  for (int i = 0; i < kAtOnce; ++i)
    queues.push_back(std::async(std::launch::async, come, target, start + i * pause, kAtOnce * pause, i + 1));
  Came all;
  for (auto& queue : queues) {
    const Came came = queue.get();
    all.connections += came.connections;
    all.first_ns = std::min(all.first_ns, came.first_ns);
    all.last_ns = std::max(all.last_ns, came.last_ns);
  }
  const double seconds = all.connections > 0 ? static_cast<double>(all.last_ns - all.first_ns) / 1e9 : 0;
  std::printf("%ld %.6f\n", all.connections, seconds);
}
