// What it takes to make namespaces: root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or a user namespace of one's own.
#pragma once

#include <sys/types.h>

namespace talweg::fabric {

// After this the process can make and configure network namespaces: with the rights that it has, or else by
// moving, for good, into a new user namespace in which it is root and its user's only inhabitant. Call it
// early, while the process has one thread. Throws Error{unsupported}, one line that says what is needed.
void gain_lab_privileges();

// Moves the process, for good, into the user namespace of process `pid`, where it is another one than its
// own. Throws Error{system}.
void join_user_namespace_of(pid_t pid);

}  // namespace talweg::fabric
