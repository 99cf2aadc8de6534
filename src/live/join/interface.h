// Which of this machine's network interfaces to use.
#pragma once

#include <string>
#include <vector>

namespace talweg::live {

struct Interface {
  std::string name;
  std::string address;  // dotted IPv4
  bool loopback = false;
};

// Those that are up and have an IPv4 address, in the kernel's order.
std::vector<Interface> interfaces();

// `choice` in NCCL_SOCKET_IFNAME's grammar: a comma-separated list of prefixes; "=" in front makes the names
// exact, "^" excludes them. Empty: "^docker". Where names are excluded, loopback is taken only when nothing
// else is left. Throws Error{invalid_argument} that lists the interfaces there are when none matches.
Interface choose_interface(const std::string& choice, const std::vector<Interface>& from);

// All that match, each once and with its first address, in the order in which `choice` names them, or the
// kernel's where it excludes. As choose_interface(), but each name has to match one.
std::vector<Interface> choose_interfaces(const std::string& choice, const std::vector<Interface>& from);

// 127.0.0.0/8: nobody else can reach it.
bool is_loopback(const std::string& dotted);

// Of whoever listens at all of this machine's addresses.
inline constexpr const char* kAnyAddress = "0.0.0.0";
// One of them, or that.
bool is_own(const std::string& dotted);

// The address from which this machine would talk to `host`; without any route throws Error{system}.
std::string address_toward(const std::string& host);

}  // namespace talweg::live
