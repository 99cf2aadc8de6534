// What TCP itself knows of how much a connection has carried and for how long it was busy with that.
#pragma once

#include <cstdint>

namespace talweg::live {

struct TcpTraffic {
  std::uint64_t retransmits = 0;          // segments sent again
  std::uint32_t round_trip_us = 0;        // smoothed
  std::uint32_t least_round_trip_us = 0;  // of the last minutes; 0: not measured
  std::uint64_t acked_bytes = 0;
  std::uint64_t resent_bytes = 0;
  double busy_seconds = 0;  // with something unacknowledged, less what the receiver had no room for
};

// Since the connection was made; zeros for a socket that is not TCP.
TcpTraffic tcp_traffic(int socket);

struct TcpPace {
  std::int64_t window_bytes = 0;   // of congestion control
  std::int64_t round_trip_ns = 0;  // smoothed; 0: not measured
};

// Now; zeros for a socket that is not TCP.
TcpPace tcp_pace(int socket);

// A number that changes with all that comes from the other side but for what it sends again, which it also
// does while nothing reaches it; 0 for a socket that is not TCP.
std::uint64_t tcp_answers(int socket);

}  // namespace talweg::live
