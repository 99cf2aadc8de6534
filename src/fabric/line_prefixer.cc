#include "fabric/line_prefixer.h"

#include <algorithm>

namespace talweg::fabric {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kMaxLineBytes - partial_.size();
    if (end != std::string_view::npos && end <= room) {
      lines.append(prefix_).append(partial_).append(bytes.substr(0, end + 1));
      partial_.clear();
      bytes.remove_prefix(end + 1);
    } else {
      const std::size_t take = std::min(room, bytes.size());
      partial_.append(bytes.substr(0, take));
      bytes.remove_prefix(take);
      if (partial_.size() == kMaxLineBytes && !bytes.empty()) lines += finish();
    }
  }
  return lines;
}

std::string LinePrefixer::finish() {
  if (partial_.empty()) return {};
  std::string line = prefix_ + partial_ + '\n';
  partial_.clear();
  return line;
}

}  // namespace talweg::fabric
