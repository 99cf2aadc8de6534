// A network device whose cable is a descriptor: what the kernel sends through it is read there, packet by
// packet, and what is written there it receives.
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace talweg::fabric {

// Makes it in the network namespace of the calling thread, for IP packets. It goes with the descriptor, which
// does not block, and which keeps the namespace. Throws Error{unsupported} where there is no /dev/net/tun,
// Error{system}.
FileDescriptor make_tun_device(const std::string& name);

}  // namespace talweg::fabric
