// The one exception type of Talweg and the short list of reasons it can carry.
#pragma once

#include <stdexcept>
#include <string>

namespace talweg {

enum class ErrorCode {
  invalid_argument,  // a call or an option that can never work; nothing was changed
  bad_file,          // an input file says something wrong; the text has file, line and what was expected
  unsupported,       // well-formed, but this build or this machine cannot do it
  system,            // the operating system refused; the text has the system's reason
  timeout,           // a deadline passed; the text names who was waited for
  peer_failed,       // another rank died or left
  aborted,           // this rank or another one called abort
  version,           // the two sides speak different versions
  mismatch,          // ranks disagree about what collective they are in; no buffer was written
  corrupted,         // a checksum did not match
};

// A one-word name for messages and JSON, such as "peer_failed". The string is static.
const char* name(ErrorCode code);

// `what()` is one line: what was attempted, with whom, and the reason. What a text quotes from a file or from
// another process cannot steer a terminal: control characters are spelled out ("\x1b").
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text);
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace talweg
