#include "live/join/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/fail.h"
#include "live/system.h"

namespace talweg::live {

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  check(::getifaddrs(&list), "listing network interfaces");
  std::vector<Interface> found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(i->ifa_addr)->sin_addr, text.data(), text.size());
    found.push_back({i->ifa_name, text.data(), (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(list);
  return found;
}

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Interface choose_interface(const std::string& choice, const std::vector<Interface>& from) {
  std::string list = choice;
  bool exclude = false;
  bool exact = false;
  while (!list.empty() && (list[0] == '^' || list[0] == '=')) {
    (list[0] == '^' ? exclude : exact) = true;
    list.erase(0, 1);
  }
  if (choice.empty()) {
    exclude = true;
    list = "docker";
  }
  const std::vector<std::string> names = split(list);
  std::optional<Interface> loopback;
  for (const Interface& i : from) {
    const bool named = std::ranges::any_of(
        names, [&](const std::string& n) { return exact ? i.name == n : i.name.starts_with(n); });
    if (named == exclude) continue;
    // Who excludes one card means another card: loopback only where there is nothing else.
    if (!exclude || !i.loopback) return i;
    if (!loopback) loopback = i;
  }
  if (loopback) return *loopback;
  std::vector<std::string> there;
  for (const Interface& i : from) there.push_back(fmt::format("{} ({})", i.name, i.address));
  refuse("no network interface matches \"{}\"; there are: {}", choice,
         there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
}

bool is_loopback(const std::string& dotted) {
  return dotted.starts_with("127.");
}

bool is_own(const std::string& dotted) {
  return dotted == kAnyAddress || is_loopback(dotted) ||
         std::ranges::any_of(interfaces(), [&](const Interface& i) { return i.address == dotted; });
}

std::string address_toward(const std::string& host) {
  const FileDescriptor fd(check(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "creating a UDP socket"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);  // no packet is sent: connect only looks up the route
  const std::string dotted = resolve_host(host);
  ::inet_pton(AF_INET, dotted.c_str(), &address.sin_addr);
  check(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
        fmt::format("looking for a route to {}", host));
  return local_endpoint(fd).host;
}

}  // namespace talweg::live
