#include "talweg/error.h"

#include <iterator>

#include "base/printable.h"

namespace talweg {

Error::Error(ErrorCode code, const std::string& text) : std::runtime_error(printable(text)), code_(code) {}

const char* name(ErrorCode code) {
  static constexpr const char* kNames[] = {"invalid_argument", "bad_file",    "unsupported", "system",
                                           "timeout",          "peer_failed", "aborted",     "version",
                                           "mismatch",         "corrupted"};
  const auto i = static_cast<std::size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

}  // namespace talweg
