// UdpPaths: by how many paths datagrams leave for another machine, from and to which addresses of both.
//
// A path is a socket by which is sent, from an address of this machine to one of the other's: the paths of
// either have its addresses in turn. What comes is received by one socket alone, whichever way it came.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "live/udp/udp_socket.h"

namespace talweg::live {

inline constexpr std::size_t kMostPathAddresses = 8;

struct UdpPaths {
  std::size_t count = 1;
  // IPv4, of this machine, for paths to others that have some, too; to all else there is one address. None:
  // the group's alone.
  std::vector<UdpAddress> addresses;
};
// For people, behind their number: " from 10.0.0.1, 10.1.0.1"; empty where they have one address.
std::string origin_of(const UdpPaths& paths);

inline const UdpAddress& of_path(std::span<const UdpAddress> addresses, std::size_t path) {
  return addresses[path % addresses.size()];
}
// To which a socket is bound that is to be reached there, and at the addresses of paths, if there are some;
// port 0.
UdpAddress listening(UdpAddress usual, const UdpPaths& paths);
// Sockets of all `paths` but the first, which is by `first`. Throws Error{system}.
std::vector<UdpSocket> more_paths(const UdpSocket& first, const UdpPaths& paths);

// As one machine tells them to another: without ports, in the network's order, 0 for none. The first that
// there is room for.
using PathAddresses = std::array<std::uint32_t, kMostPathAddresses>;
PathAddresses packed(std::span<const UdpAddress> addresses);
// To which paths go: the other's, if both have some, else its `usual` one.
std::vector<UdpAddress> addressed(const PathAddresses& theirs, const UdpPaths& own, UdpAddress usual);

// For people: of so many paths to `whom` some were left.
std::string paths_left(std::size_t left, std::size_t paths, const std::string& whom);

}  // namespace talweg::live
