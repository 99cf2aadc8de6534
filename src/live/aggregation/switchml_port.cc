#include "live/aggregation/switchml_port.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "live/join/interface.h"

namespace talweg::live {

namespace {

constexpr std::uint32_t kJob = 1;  // the only one
// Ports of one worker's, each with the one that it sends to, that are answered: threads, and what was there
// before.
constexpr std::size_t kMostSeats = 1024;

// Null: an address of another kind.
std::optional<std::uint64_t> host_of(const UdpAddress& address) {
  if (address.ipv6()) return std::nullopt;
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.raw())->sin_addr.s_addr);
}

std::uint64_t worker_host(const std::string& text) {
  const auto host = host_of(UdpAddress(fmt::format("{}:1", resolve_host(text))));
  if (!host) refuse("SwitchML's workers have IPv4 addresses, and {} is none", text);
  return *host;
}

protocol::SwitchmlTerms terms_of(const SwitchmlPortOptions& options) {
  protocol::SwitchmlTerms terms;
  terms.job = kJob;
  for (const std::string& worker : options.workers) terms.hosts.push_back(worker_host(worker));
  terms.slots = options.slots;
  terms.elements = options.elements;
  terms.bytes_per_second = options.bytes_per_second;
  // Twice what all of them may have on its way.
  terms.burst_bytes =
      std::max(terms.burst_bytes, 2.0 * static_cast<double>(options.workers.size()) * options.slots *
                                      static_cast<double>(wire::switchml_bytes(options.elements)));
  return terms;
}

protocol::SwitchLimits limits_of(const SwitchmlPortOptions& options) {
  protocol::SwitchLimits limits;
  limits.memory_bytes = options.memory_bytes;
  limits.jobs = 1;
  limits.bytes_per_second = options.bytes_per_second;
  return limits;
}

}  // namespace

SwitchmlPort::Socket::Socket(const UdpAddress& local, const UdpOptions& options)
    : socket(local, options), sender(socket), receiver(socket) {}

SwitchmlPort::SwitchmlPort(const SwitchmlPortOptions& options) : sums_(limits_of(options)) {
  const protocol::SwitchmlTerms terms = terms_of(options);
  if (const auto refused = sums_.open(terms)) refuse("SwitchML's workers: {}", refused->text);
  listen(options);
  for (const std::uint64_t host : terms.hosts) workers_[host];
  slots_ = terms.slots;
  elements_ = terms.elements;
  thread_ = std::thread([this] { loop(); });
}

SwitchmlPort::~SwitchmlPort() {
  orders_.give([this] { stop_ = true; });
  thread_.join();
}

void SwitchmlPort::listen(const SwitchmlPortOptions& options) {
  const std::string host = resolve_host(options.host);
  if (!options.anybody && !is_loopback(host))
    refuse(
        "SwitchML's packets do not prove who has sent them: at {} whoever can reach it could spoil sums; it "
        "listens on loopback, unless that is said to be wanted",
        host);
  const int last = options.first_port == 0 ? 0 : options.last_port;
  if (options.first_port < 0 || last > 0xffff || options.first_port > last)
    refuse("SwitchML's packets come to ports from 1 to 65535, not to {} to {}", options.first_port, last);
  for (int port = options.first_port; port <= last; ++port)
    sockets_.push_back(
        std::make_unique<Socket>(UdpAddress(fmt::format("{}:{}", host, port)), options.socket));
}

std::size_t SwitchmlPort::fixed_bytes(const SwitchmlPortOptions& options) {
  // As those of a thread: what a receiver, a sender and the kernel's buffers take.
  constexpr std::size_t kReceiver = std::size_t{2} << 20;
  constexpr std::size_t kSender = std::size_t{512} << 10;
  const std::size_t sockets =
      options.first_port == 0 ? 1 : static_cast<std::size_t>(options.last_port - options.first_port + 1);
  return sockets * (kReceiver + kSender + 2 * static_cast<std::size_t>(options.socket.receive_bytes) +
                    2 * static_cast<std::size_t>(options.socket.send_bytes));
}

SwitchmlPortStatus SwitchmlPort::status() {
  SwitchmlPortStatus status;
  orders_.give([&] {
    status.workers = workers_.size();
    for (const auto& [host, worker] : workers_) status.here += worker.seats.empty() ? 0 : 1;
    status.slots = slots_;
    status.memory_bytes = sums_.memory_bytes();
    status.counters = *sums_.counters(kJob);
    status.strays = sums_.strays();
    for (const auto& socket : sockets_) {
      status.sent += socket->sender.statistics().datagrams;
      status.received += socket->receiver.statistics().datagrams;
      status.dropped += socket->socket.dropped();
    }
  });
  return status;
}

void SwitchmlPort::loop() {
  std::vector<pollfd> polled{{orders_.fd(), POLLIN, 0}};
  for (const auto& socket : sockets_) polled.push_back({socket->socket.fd(), POLLIN, 0});
  while (!stop_) {
    ::poll(polled.data(), polled.size(), -1);
    const std::int64_t now = now_ns();
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      if (polled[i + 1].revents != 0)
        sockets_[i]->receiver.receive([&](UdpReceiver::Datagram& datagram) { take(i, datagram, now); });
    // What the kernel does not take is as good as lost: workers ask again.
    for (const auto& socket : sockets_) socket->sender.flush();
    if (orders_.given()) orders_.obey();
  }
}

void SwitchmlPort::take(std::size_t socket, UdpReceiver::Datagram& datagram, std::int64_t now) {
  const auto host = host_of(datagram.from);
  protocol::Peer from{host.value_or(0), 0};
  // Whoever sends anything else is not to take the place of those that send what can be summed.
  wire::SwitchmlHeader header;
  const bool sound =
      wire::decode(datagram.bytes, header) == nullptr && header.slot < slots_ && header.elements == elements_;
  if (const auto found = host && sound ? workers_.find(*host) : workers_.end(); found != workers_.end())
    from.port = seat_of(found->second, socket, datagram.from);
  for (const protocol::SwitchAction& action : sums_.on_switchml(datagram.bytes, from, now)) answer(action);
}

// That where this worker sends from now; of too many the oldest gives way.
std::uint16_t SwitchmlPort::seat_of(Worker& worker, std::size_t socket, const UdpAddress& from) {
  const auto key = static_cast<std::uint32_t>(socket << 16) | static_cast<std::uint32_t>(from.port());
  if (const auto known = worker.by_ports.find(key); known != worker.by_ports.end()) return known->second;
  std::size_t chosen = worker.seats.size();
  if (chosen < kMostSeats) {
    worker.seats.emplace_back();
  } else {
    chosen = worker.next;
    worker.next = (worker.next + 1) % kMostSeats;
    worker.by_ports.erase(worker.seats[chosen].key);
  }
  Seat& seat = worker.seats[chosen];
  if (seat.used) sockets_[seat.socket]->sender.remove(seat.to);
  seat.to = sockets_[socket]->sender.add(from);
  seat.key = key;
  seat.socket = socket;
  seat.used = true;
  worker.by_ports[key] = static_cast<std::uint16_t>(chosen);
  return static_cast<std::uint16_t>(chosen);
}

void SwitchmlPort::answer(const protocol::SwitchAction& action) {
  for (const protocol::Peer& peer : action.peers) {
    const Seat& seat = workers_.at(peer.host).seats[peer.port];
    UdpSender& sender = sockets_[seat.socket]->sender;
    std::byte* at = sender.place(seat.to, wire::kOrdinary, action.payload.size());
    if (at == nullptr && sender.flush()) at = sender.place(seat.to, wire::kOrdinary, action.payload.size());
    if (at == nullptr) continue;
    std::memcpy(at, action.payload.data(), action.payload.size());
    sender.placed(action.payload.size());
  }
}

}  // namespace talweg::live
