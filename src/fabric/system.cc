#include "fabric/system.h"

#include <errno.h>
#include <string.h>

#include "base/fail.h"

namespace talweg::fabric {

void throw_system(const std::string& attempt) {
  throw_error(ErrorCode::system, "cannot {}: {}", attempt, strerror(errno));
}

}  // namespace talweg::fabric
