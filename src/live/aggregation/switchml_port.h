// SwitchmlPort: one job of SwitchML's workers, who speak its published packets (wire/switchml.h), and the
// thread that sums for it (protocol/aggregation/switchml_slots.h).
//
//   SwitchmlPort port({.host = "127.0.0.1", .workers = {"127.0.0.1", "127.0.0.2"}});   // serves from here on
//
// Nothing on that wire proves who has sent a packet: a worker is known by its host's address alone, and there
// is no other job and no end. So it listens on loopback, unless it is told that whoever can reach it may
// send. Results of a slot go to where each worker sent to that slot from last, from the port that it sent to:
// workers with several threads have a port for each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "live/aggregation/orders.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/switch.h"
#include "wire/switchml.h"

namespace talweg::live {

struct SwitchmlPortOptions {
  std::string host;                           // that it listens at, an IPv4 address
  int first_port = wire::kSwitchmlFirstPort;  // 0: any one that is free, and only one
  int last_port = wire::kSwitchmlLastPort;
  std::vector<std::string> workers;  // IPv4 addresses of their hosts, 1 to 32
  std::uint16_t slots = 256;
  std::uint16_t elements = 256;                       // of a packet, 64 or 256
  double bytes_per_second = 12.5e9;                   // of packets from all workers
  std::size_t memory_bytes = std::size_t{256} << 20;  // of slots, at most
  bool anybody = false;                               // it may be reached from other hosts
  UdpOptions socket;
};

struct SwitchmlPortStatus {
  std::size_t workers = 0, here = 0;  // that there are, and that have been heard
  std::size_t slots = 0;
  std::size_t memory_bytes = 0;       // of these
  protocol::SwitchCounters counters;  // of its workers
  protocol::SwitchCounters strays;    // of others
  // Packets of all its sockets together.
  std::uint64_t sent = 0, received = 0, dropped = 0;
};

class SwitchmlPort {
 public:
  // Throws Error{invalid_argument} for what cannot be served, Error{system}.
  explicit SwitchmlPort(const SwitchmlPortOptions& options);
  ~SwitchmlPort();
  SwitchmlPort(const SwitchmlPort&) = delete;
  SwitchmlPort& operator=(const SwitchmlPort&) = delete;

  int first_port() const { return sockets_.front()->socket.address().port(); }
  int last_port() const { return sockets_.back()->socket.address().port(); }
  // Memory beside that of slots, in bytes.
  static std::size_t fixed_bytes(const SwitchmlPortOptions& options);
  SwitchmlPortStatus status();

 private:
  struct Socket {
    Socket(const UdpAddress& local, const UdpOptions& options);
    UdpSocket socket;
    UdpSender sender;
    UdpReceiver receiver;
  };
  // Where a worker's thread sends from, and to. Its number is the port of the protocol's peers.
  struct Seat {
    std::uint32_t key = 0;  // both ports
    std::size_t socket = 0;
    UdpSender::Destination to = 0;
    bool used = false;
  };
  struct Worker {
    std::vector<Seat> seats;
    std::unordered_map<std::uint32_t, std::uint16_t> by_ports;
    std::size_t next = 0;  // that gives way to a new one
  };

  void listen(const SwitchmlPortOptions& options);
  void loop();
  void take(std::size_t socket, UdpReceiver::Datagram& datagram, std::int64_t now_ns);
  std::uint16_t seat_of(Worker& worker, std::size_t socket, const UdpAddress& from);
  void answer(const protocol::SwitchAction& action);

  protocol::AggregationSwitch sums_;
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::unordered_map<std::uint64_t, Worker> workers_;  // by host
  std::size_t slots_ = 0;
  std::uint16_t elements_ = 0;
  Orders orders_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talweg::live
