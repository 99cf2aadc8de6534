#include "live/udp/udp_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace talweg::live {

std::string origin_of(const UdpPaths& paths) {
  std::vector<std::string> hosts;
  for (const UdpAddress& address : paths.addresses) {
    const std::string whole = to_string(address);
    hosts.push_back(whole.substr(0, whole.rfind(':')));
  }
  return hosts.size() < 2 ? "" : fmt::format(" from {}", fmt::join(hosts, ", "));
}

UdpAddress listening(UdpAddress usual, const UdpPaths& paths) {
  if (!paths.addresses.empty()) usual = UdpAddress("0.0.0.0:0");
  usual.set_port(0);
  return usual;
}

std::vector<UdpSocket> more_paths(const UdpSocket& first, const UdpPaths& paths) {
  std::vector<UdpSocket> more;
  for (std::size_t path = 1; path < paths.count; ++path) {
    UdpAddress local = paths.addresses.empty() ? first.address() : of_path(paths.addresses, path);
    local.set_port(0);
    more.emplace_back(local, UdpOptions{.merge = false, .deaf = true});
  }
  return more;
}

PathAddresses packed(std::span<const UdpAddress> addresses) {
  PathAddresses packed{};
  for (std::size_t i = 0; i < std::min(addresses.size(), packed.size()); ++i) packed[i] = addresses[i].ipv4();
  return packed;
}

std::vector<UdpAddress> addressed(const PathAddresses& theirs, const UdpPaths& own, UdpAddress usual) {
  std::vector<UdpAddress> to;
  for (const std::uint32_t address : theirs) {
    if (address == 0 || own.addresses.empty()) continue;
    to.emplace_back("0.0.0.0:0");
    to.back().set_ipv4(address);
    to.back().set_port(static_cast<std::uint16_t>(usual.port()));
  }
  if (to.empty()) to.push_back(usual);
  return to;
}

std::string paths_left(std::size_t left, std::size_t paths, const std::string& whom) {
  return fmt::format("{} of {} paths to {} {}", left, paths, whom,
                     left == 1 ? "answers nothing; it is left" : "answer nothing; they are left");
}

}  // namespace talweg::live
