// Multicast groups of IPv4: who may be sent to by one datagram for all. No socket of its own: those of
// udp_socket.h, which one end has told to send to groups, and the other one is bound to the group's address.
#pragma once

#include "live/udp/udp_socket.h"

namespace talweg::live {

// Whether it is a group of IPv4, and none of those that routers and hosts keep to themselves (224.0.0.0/24).
bool is_group(const UdpAddress& address);

// What the socket sends to groups leaves by the interface that has its address, and passes `hops` - 1
// routers. Members on its own host get it, too. Throws Error{system}.
void send_to_groups(const UdpSocket& socket, int hops);

// Asks the network for what is sent to the group that the socket is bound to, with UdpOptions::shared, by the
// interface that has the address `by`; and takes nothing that comes by another one. For as long as the socket
// is open. Throws Error{system}.
void join_group(const UdpSocket& socket, const UdpAddress& by);

}  // namespace talweg::live
