#include "base/host_port.h"

#include <algorithm>
#include <charconv>

namespace talweg {

std::optional<HostPort> parse_host_port(const std::string& text, int least_port) {
  constexpr int kMostPort = 65535;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const auto is_visible = [](unsigned char c) { return c > ' ' && c < 0x7f; };
  if (!std::all_of(text.begin(), text.end(), is_visible)) return std::nullopt;
  const char* const end = text.data() + text.size();
  int port = 0;
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || port < least_port || port > kMostPort) return std::nullopt;
  return HostPort{text.substr(0, colon), port};
}

}  // namespace talweg
