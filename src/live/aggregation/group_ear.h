// GroupEar: a worker's end of the multicast group that its switch sends results to (switch_groups.h): a
// socket that has joined it, and what the switch is to be told of what comes by it.
//
//   GroupEar ear(offer, own, lanes, options);     // throws where its host cannot join
//   ear.receive(use);                             // as UdpReceiver
//   say ear.probed(lane, attempt), ear.result(...), if there is anything to say
//
// Anybody in the network can send to a group. What comes by it is opened as all datagrams are, before
// anything is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "live/udp/udp_receiver.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/result_tally.h"
#include "wire/switch_message.h"

namespace talweg::live {

class GroupEar {
 public:
  // `own`: from which the worker speaks to the switch. `lanes`: threads of the switch. Throws Error.
  GroupEar(const wire::SwitchGroup& group, const UdpAddress& own, std::size_t lanes, UdpOptions options,
           UdpReceiver::ReceiveCall receive);

  int fd() const { return socket_.fd(); }
  template <class Use>
  bool receive(Use&& use) {
    return receiver_.receive(use);
  }
  const UdpReceiveStatistics& received() const { return receiver_.statistics(); }

  // A probe of this lane and attempt has come by the group. Of the last lane: it has heard them all. What was
  // of an earlier attempt is forgotten.
  std::optional<wire::SwitchHears> probed(std::size_t lane, std::uint32_t attempt);
  // A result of this lane, sound and not seen before, has come, by the group or by this worker's own address:
  // as it was sent to all, or again to this worker alone. Whenever too few have come that were sent to the
  // group: they are lost, which a switch that does not send there does not mind. Whoever brings what was sent
  // to all by an own address does not bring what is missing.
  std::optional<wire::SwitchHears> result(std::size_t lane, std::uint16_t number, bool to_all, bool by_group);

 private:
  struct Lane {
    bool probed = false;
    protocol::ResultTally tally;
  };
  bool heard() const;

  UdpSocket socket_;
  UdpReceiver receiver_;
  std::vector<Lane> lanes_;
  std::uint32_t attempt_ = 0;
};

}  // namespace talweg::live
