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

// Of a choice, as choose_interface() says.
class Grammar {
 public:
  explicit Grammar(const std::string& choice) : excludes_(choice.empty()) {
    std::string list = choice;
    while (!list.empty() && (list[0] == '^' || list[0] == '=')) {
      (list[0] == '^' ? excludes_ : exact_) = true;
      list.erase(0, 1);
    }
    names_ = choice.empty() ? std::vector<std::string>{"docker"} : split(list);
  }
  bool excludes() const { return excludes_; }
  const std::string& name(std::size_t place) const { return names_[place]; }
  bool is(std::size_t place, const Interface& i) const {
    return exact_ ? i.name == names_[place] : i.name.starts_with(names_[place]);
  }
  // Where the choice has it first: below places(), of which there is one where names are excluded; else
  // places().
  std::size_t place_of(const Interface& i) const {
    std::size_t place = 0;
    while (place < names_.size() && !is(place, i)) ++place;
    return !excludes_ ? place : place == names_.size() ? 0 : 1;
  }
  std::size_t places() const { return excludes_ ? 1 : names_.size(); }

 private:
  bool excludes_;
  bool exact_ = false;
  std::vector<std::string> names_;
};

[[noreturn]] void none_matches(const std::string& choice, const std::vector<Interface>& from) {
  std::vector<std::string> there;
  for (const Interface& i : from) there.push_back(fmt::format("{} ({})", i.name, i.address));
  refuse("no network interface matches \"{}\"; there are: {}", choice,
         there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
}

}  // namespace

Interface choose_interface(const std::string& choice, const std::vector<Interface>& from) {
  const Grammar grammar(choice);
  std::optional<Interface> loopback;
  for (const Interface& i : from) {
    if (grammar.place_of(i) == grammar.places()) continue;
    // Who excludes one card means another card: loopback only where there is nothing else.
    if (!grammar.excludes() || !i.loopback) return i;
    if (!loopback) loopback = i;
  }
  if (loopback) return *loopback;
  none_matches(choice, from);
}

std::vector<Interface> choose_interfaces(const std::string& choice, const std::vector<Interface>& from) {
  const Interface first = choose_interface(choice, from);
  const Grammar grammar(choice);
  std::vector<Interface> chosen;
  for (std::size_t place = 0; place < grammar.places(); ++place) {
    for (const Interface& i : from)
      if (grammar.place_of(i) == place && (!grammar.excludes() || i.loopback == first.loopback) &&
          std::ranges::none_of(chosen, [&](const Interface& c) { return c.name == i.name; }))
        chosen.push_back(i);
    if (!grammar.excludes() &&
        std::ranges::none_of(from, [&](const auto& i) { return grammar.is(place, i); }))
      none_matches(grammar.name(place), from);
  }
  return chosen;
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
