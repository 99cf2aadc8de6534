// SwitchmlClient: a worker of SwitchML's, at a switch that speaks its published packets: theirs, or
// SwitchmlPort's.
//
//   SwitchmlClient client({.address = {"10.0.0.9", 0xBEE0}, .local = {"10.0.0.1", 0}, .workers = 4});
//   client.all_reduce({in, out, count, protocol::SwitchmlElements::f32}, deadline_ns);
//
// The switch knows its workers by their hosts: `local` is the address that it has been told. Nothing says
// whether all are there: a sum waits for them until its deadline. After an error the client is of no use any
// more, and the slots at the switch are in no state that a new one could go on from.
//
// Of one thread at a time.
#pragma once

#include <cstdint>

#include "live/system.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/switchml_worker.h"

namespace talweg::live {

struct SwitchmlClientOptions {
  Endpoint address;              // of the switch: one of its ports
  Endpoint local;                // what the packets come from; port 0: any
  std::uint8_t workers = 1;      // 1 to 32
  std::uint16_t first_slot = 0;  // its slots: the same for all workers of a job
  std::uint16_t slots = 256;
  std::uint16_t elements = 256;  // of a packet, 64 or 256
  UdpOptions socket;
};

class SwitchmlClient : private protocol::PacketSink {
 public:
  // Throws Error{invalid_argument}, Error{system}.
  explicit SwitchmlClient(const SwitchmlClientOptions& options);

  // Throws Error: timeout, or what a sum can fail with.
  void all_reduce(const protocol::SwitchmlSum& sum, std::int64_t deadline_ns);

  std::uint64_t sent_again() const { return worker_.sent_again(); }
  const UdpSendStatistics& sent() const { return sender_.statistics(); }

 private:
  void send(std::span<const std::byte> packet) override;

  const SwitchmlClientOptions options_;
  const UdpAddress there_;
  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  const UdpSender::Destination to_;
  protocol::SwitchmlWorker worker_;
};

}  // namespace talweg::live
