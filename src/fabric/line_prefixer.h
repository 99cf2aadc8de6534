// Cuts a stream of bytes into whole lines with a prefix, so that the lines of several ranks do not mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace talweg::fabric {

// A line longer than this is passed on in pieces, so that a rank that never ends a line cannot fill the
// memory.
inline constexpr std::size_t kMaxLineBytes = 64 * 1024;

class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  // The lines that `bytes` completes, each with its prefix and '\n'; empty when none is complete.
  std::string feed(std::string_view bytes);
  // The last line if it had no '\n' yet.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace talweg::fabric
