// What BoundedSums (talweg/bounded_loss.h) is made with, for tests: losses are made where datagrams leave.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

struct BoundedSeams {
  live::UdpSender::SendCall send;
  bool offload = true;
  bool warm_up = true;
  live::UdpOptions socket;
  live::UdpSender::SendCall send_to_switch;
  std::vector<std::int64_t> round_trips_ns;  // by rank, for those that connections measure; empty: these
};
std::shared_ptr<BoundedSums> make_bounded(Group& group, const BoundedLossOptions& options,
                                          const BoundedSeams& seams);

}  // namespace talweg::group
