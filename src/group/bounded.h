// What BoundedSums (talweg/bounded_loss.h) is made with, for tests: losses are made where datagrams leave.
#pragma once

#include <memory>

#include "live/udp/udp_sender.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

struct BoundedSeams {
  live::UdpSender::SendCall send;
  bool offload = true;
  bool warm_up = true;
};
std::shared_ptr<BoundedSums> make_bounded(Group& group, const BoundedLossOptions& options,
                                          const BoundedSeams& seams);

}  // namespace talweg::group
