#include "talweg/error.h"

#include "base/printable.h"

namespace talweg {

Error::Error(ErrorCode code, const std::string& text) : std::runtime_error(printable(text)), code_(code) {}

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::system:
      return "system";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer_failed:
      return "peer_failed";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::version:
      return "version";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::corrupted:
      return "corrupted";
  }
  return "unknown";
}

}  // namespace talweg
