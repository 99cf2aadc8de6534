// How long a connection with its handshake takes on loopback, one after the other; prints one line of JSON.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "live/join/gate.h"

namespace {

constexpr int kConnections = 1000;

double percentile(std::vector<double>& values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main() {
  using namespace talweg;
  const wire::Secret key = wire::secret_from_text(wire::random_key_text());
  live::Gate gate(
      key, [](const wire::Introduction&) { return true; }, Logger(0));
  live::FileDescriptor listener = live::listen_tcp({"127.0.0.1", 0});
  const live::Endpoint endpoint = live::local_endpoint(listener);
  gate.listen(std::move(listener));
  std::atomic<bool> over{false};
  std::thread accepting([&] {
    while (!over) {
      live::wait_ready(gate.fd(), false, live::now_ns() + 10'000'000);
      gate.step(live::now_ns());
    }
  });
  std::vector<double> proved, connected;
  for (int i = 0; i < kConnections; ++i) {
    const std::int64_t deadline = live::now_ns() + 10'000'000'000;
    std::int64_t begin = live::now_ns();
    live::knock([&] { return live::connect_tcp(endpoint, deadline); }, key, {}, deadline);
    proved.push_back(static_cast<double>(live::now_ns() - begin) / 1e6);
    begin = live::now_ns();
    live::connect_tcp(endpoint, deadline);
    connected.push_back(static_cast<double>(live::now_ns() - begin) / 1e6);
  }
  over = true;
  accepting.join();
  std::printf("{\"connect_ms\": %.4f, \"median_ms\": %.4f, \"p99_ms\": %.4f}\n", percentile(connected, 0.5),
              percentile(proved, 0.5), percentile(proved, 0.99));
}
