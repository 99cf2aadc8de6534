// What a program on a host of the lab sees of its machine.
#pragma once

#include <string>

#include "fabric/net_namespace.h"

namespace talweg::fabric {

// Moves the calling process, which must have one thread, for good onto the host: its network, its name, its
// /sys/class/net, and `hosts_file` as /etc/hosts, so that names of the lab's hosts resolve. Throws
// Error{system}.
void enter_host(const NetNamespace& net, const std::string& name, const std::string& hosts_file);

}  // namespace talweg::fabric
