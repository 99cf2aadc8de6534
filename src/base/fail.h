// Errors with a formatted text: refuse("--root {}: {} has no root", root, name(op)).
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "talweg/error.h"

namespace talweg {

template <class... Args>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// Of what can never work as it was asked for.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
}

// What a system call that has failed left in errno: "cannot write uid_map: Operation not permitted".
template <class... Args>
[[noreturn]] void throw_system(fmt::format_string<Args...> attempt, Args&&... args) {
  const int reason = errno;
  throw_error(ErrorCode::system, "cannot {}: {}", fmt::format(attempt, std::forward<Args>(args)...),
              std::strerror(reason));
}

}  // namespace talweg
