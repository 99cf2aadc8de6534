// What every wrapper around a system call does when the call fails.
#pragma once

#include <string>

namespace talweg::fabric {

// Throws Error{system}: "cannot <attempt>: <reason of errno>".
[[noreturn]] void throw_system(const std::string& attempt);

}  // namespace talweg::fabric
