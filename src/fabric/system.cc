#include "fabric/system.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include "talweg/error.h"

namespace talweg::fabric {

void throw_system(const std::string& attempt) {
  throw Error(ErrorCode::system, fmt::format("cannot {}: {}", attempt, strerror(errno)));
}

}  // namespace talweg::fabric
