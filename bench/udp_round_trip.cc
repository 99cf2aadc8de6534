// What a UDP round trip takes, to a program that does nothing else:
//   udp_round_trip ADDRESS PORT                  sends every datagram back until it is told to end
//   udp_round_trip ADDRESS PORT BYTES SECONDS    {"median_us": 61.2, "trips": 9000}: so many bytes there and
//                                                back, in datagrams that fill frames of Ethernet, sent at once
// Both sleep until something comes, as ranks and a switch do.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "live/system.h"
#include "talweg/error.h"

namespace {

using namespace talweg;

constexpr std::size_t kPayload = 1472;

void serve(int fd, const sockaddr_in& at) {
  live::check(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), "binding a UDP socket");
  std::vector<char> data(kPayload);
  for (;;) {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t n =
        ::recvfrom(fd, data.data(), data.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (n > 0)
      ::sendto(fd, data.data(), static_cast<std::size_t>(n), 0, reinterpret_cast<const sockaddr*>(&from),
               length);
  }
}

bool trip(int fd, std::size_t bytes, std::vector<char>& data) {
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t n = std::min(left, kPayload);
    if (::send(fd, data.data(), n, 0) < 0) return false;
    left -= n;
  }
  for (std::size_t back = 0; back < bytes;) {
    const ssize_t n = ::recv(fd, data.data(), data.size(), 0);
    if (n <= 0) return false;
    back += static_cast<std::size_t>(n);
  }
  return true;
}

void ask(int fd, const sockaddr_in& at, std::size_t bytes, double seconds) {
  live::check(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), "connecting a UDP socket");
  const timeval patience{0, 200'000};  // for what is lost
  live::check(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), "setting SO_RCVTIMEO");
  std::vector<char> data(kPayload);
  std::vector<std::int64_t> took;
  const std::int64_t until_ns = live::now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  for (std::int64_t begin_ns = live::now_ns(); begin_ns < until_ns; begin_ns = live::now_ns()) {
    if (trip(fd, bytes, data))
      took.push_back(live::now_ns() - begin_ns);
    else
      while (::recv(fd, data.data(), data.size(), MSG_DONTWAIT) > 0) {
      }
  }
  if (took.empty()) throw Error(ErrorCode::timeout, "nothing has come back");
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  std::printf("{\"median_us\": %.2f, \"trips\": %zu}\n", static_cast<double>(*middle) * 1e-3, took.size());
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  if ((argc != 3 && argc != 5) || ::inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
    std::fprintf(stderr, "usage: udp_round_trip ADDRESS PORT [BYTES SECONDS]\n");
    return 2;
  }
  at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[2])));
  try {
    const live::FileDescriptor fd(
        live::check(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "creating a UDP socket"));
    if (argc == 3)
      serve(fd.get(), at);
    else
      ask(fd.get(), at, std::stoul(argv[3]), std::stod(argv[4]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "udp_round_trip: %s\n", e.what());
    return 2;
  }
  return 0;
}
