// FabricMeter: one host's part in what `talweg fabric` measures: datagrams of all classes to another host,
// trains that say how fast a link is, and load. All hosts of a group take part in every measurement, most of
// them by waiting for its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "live/udp/class_socket.h"
#include "steer/class_checks.h"
#include "steer/load_seen.h"
#include "talweg/group.h"
#include "wire/probe_packet.h"

namespace talweg::study {

class FabricMeter {
 public:
  // `hosts`: one rank of each host. `address`: of this one, without a port. `encrypts`: as the group does.
  // Throws Error{system}.
  FabricMeter(Group& hosts, const std::string& address, bool encrypts);

  // What each host is able to do, on all hosts the same.
  std::vector<steer::HostSeen> abilities();

  // Each host to the one that is `shift` hosts behind it: datagrams of all classes and sizes. By receiver, on
  // all hosts the same.
  std::vector<steer::ClassesSeen> classes(int shift);

  // How fast datagrams of host `from` reach the next one, in bit/s; the same on all hosts. Fills that link
  // for some 10 ms. 0: nothing comes.
  double rate(int from);

  struct Load {
    int to = 0;
    std::vector<int> from;
    std::vector<double> rates;    // bit/s, by `from`
    int priority = 0;             // of the load
    std::vector<int> priorities;  // of the probes
    std::int64_t idle_ns = 0;     // before the load
    std::int64_t load_ns = 0;
  };
  // The same on all hosts.
  steer::LoadSeen load(const Load& load);

  std::int64_t bytes_sent() const { return bytes_; }

 private:
  struct Peer {
    live::UdpAddress address;
    std::uint32_t most_bytes = 0;  // of an IP packet, as the kernel knows
  };
  int size() const { return hosts_.size(); }
  int rank() const { return hosts_.rank(); }
  std::size_t around() const { return socket_.socket().ipv6() ? 48 : 28; }
  wire::ProbePacket packet(std::uint8_t traffic_class);
  // An IP packet of `ip_bytes`; returns errno, 0: it has left.
  int send(int to, wire::ProbePacket packet, std::size_t ip_bytes);
  std::uint32_t load_bytes(int to) const;
  // Hands over what comes, until all hosts have called it and nothing more comes.
  template <class Take>
  void listen(Take&& use);
  void send_classes(int to, steer::ClassesSeen& seen);
  steer::LoadSent send_load(const Load& load, std::size_t which);

  Group& hosts_;
  live::ClassSocket socket_;
  bool encrypts_;
  std::uint64_t token_ = 0;
  std::uint16_t trial_ = 0;
  bool fast_ = false;  // hosts send more than small packets are good for; on all hosts the same
  std::vector<Peer> peers_;
  std::vector<std::byte> buffer_;
  std::int64_t bytes_ = 0;
};

}  // namespace talweg::study
