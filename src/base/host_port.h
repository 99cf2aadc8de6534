// "10.0.0.9:4711", taken apart.
#pragma once

#include <optional>
#include <string>

namespace talweg {

struct HostPort {
  std::string host;  // a name or an address, not looked up
  int port = 0;
};
// Empty: not a host of visible ASCII, a colon and a port in digits from `least_port` to 65535.
std::optional<HostPort> parse_host_port(const std::string& text, int least_port = 1);

}  // namespace talweg
