// What a network makes of datagrams one by one, from how they left and how they came: whether every class
// passes and stays what it is, and how large packets may be. And what a host can do at all.
//
// All is counted, nothing is timed. What single packets were lost or marked by other traffic decides nothing:
// it is the half of a kind that counts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "steer/fabric_check.h"
#include "wire/traffic_class.h"

namespace talweg::steer {

// Datagrams of one traffic class, in one direction.
struct ClassCount {
  std::uint16_t sent = 0;
  std::uint16_t refused = 0;  // by the sender's own kernel, in place of being sent
  std::uint16_t received = 0;
  std::uint16_t same_dscp = 0;
  std::uint16_t other_dscp = 0;           // one that some of the others came with
  std::array<std::uint16_t, 4> by_ecn{};  // how many came with each
};

inline constexpr std::array<std::uint8_t, 3> kProbedEcn = {0, wire::kEcnCapable, wire::kEcnMarked};

// Trivially copyable: ranks tell it each other.
struct ClassesSeen {
  std::array<std::array<ClassCount, kProbedEcn.size()>, wire::kDscp.size()> of{};  // by priority, kProbedEcn
  std::uint32_t known_bytes = 0;    // of IP packets: what the sender's kernel takes; 0: it knows no way
  std::uint32_t tried_bytes = 0;    // the largest that was tried
  std::uint32_t largest_bytes = 0;  // that has come; 0: none
  std::uint32_t packet_bytes = 0;   // of gradients that such a one has room for
};

FabricCheck check_dscp(const ClassesSeen& seen);
FabricCheck check_ecn(const ClassesSeen& seen);
FabricCheck check_mtu(const ClassesSeen& seen);

struct HostSeen {
  bool sets_classes = false;        // any DSCP and ECN
  bool offloads = false;            // several datagrams leave in one call (UDP_SEGMENT)
  bool merges = false;              // and come in one (UDP_GRO)
  std::uint32_t receive_bytes = 0;  // of datagrams that may wait at a socket
  std::string shortage;             // of buffers, a line for people; empty: none
};
FabricCheck check_host(const HostSeen& seen);

}  // namespace talweg::steer
