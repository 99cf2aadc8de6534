#include "live/aggregation/switchml_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "live/join/interface.h"

namespace talweg::live {

namespace {

constexpr std::int64_t kMostWaitNs = 1'000 * kMillisecondNs;  // then it looks again
constexpr int kRoomWaitMs = 10;

UdpAddress resolved_address(const Endpoint& endpoint) {
  return UdpAddress(fmt::format("{}:{}", resolve_host(endpoint.host), endpoint.port));
}

protocol::SwitchmlWorkerTerms worker_terms_of(const SwitchmlClientOptions& options) {
  protocol::SwitchmlWorkerTerms terms;
  terms.workers = options.workers;
  terms.first_slot = options.first_slot;
  terms.slots = options.slots;
  terms.elements = options.elements;
  return terms;
}

}  // namespace

SwitchmlClient::SwitchmlClient(const SwitchmlClientOptions& options)
    : options_(options),
      there_(resolved_address(options.address)),
      socket_(resolved_address(options.local), options.socket),
      sender_(socket_),
      receiver_(socket_),
      to_(sender_.add(there_)),
      worker_(worker_terms_of(options), *this) {}

// What the kernel does not take now is as good as lost on the way: it is sent again in its time.
void SwitchmlClient::send(std::span<const std::byte> packet) {
  std::byte* at = sender_.place(to_, wire::kOrdinary, packet.size());
  if (at == nullptr && !sender_.flush()) {
    pollfd polled{socket_.fd(), POLLOUT, 0};
    ::poll(&polled, 1, kRoomWaitMs);
    sender_.flush();
  }
  if (at == nullptr) at = sender_.place(to_, wire::kOrdinary, packet.size());
  if (at == nullptr) return;
  std::memcpy(at, packet.data(), packet.size());
  sender_.placed(packet.size());
}

void SwitchmlClient::all_reduce(const protocol::SwitchmlSum& sum, std::int64_t deadline_ns) {
  worker_.start(sum, deadline_ns, now_ns());
  for (;;) {
    sender_.flush();
    if (const auto& failure = worker_.failure())
      throw_error(failure->code, "sum at SwitchML's switch {}: {}", to_string(there_), failure->why);
    if (worker_.done()) return;
    const std::int64_t left = std::clamp<std::int64_t>(worker_.next_time_ns() - now_ns(), 0, kMostWaitNs);
    pollfd polled{socket_.fd(), POLLIN, 0};
    ::poll(&polled, 1, static_cast<int>((left + kMillisecondNs - 1) / kMillisecondNs));
    const std::int64_t now = now_ns();
    receiver_.receive([&](UdpReceiver::Datagram& datagram) {
      if (datagram.from == there_) worker_.on(datagram.bytes, now);
    });
    if (worker_.next_time_ns() <= now) worker_.on_time(now);
  }
}

}  // namespace talweg::live
