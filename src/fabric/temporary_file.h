// A file that is there as long as the object is.
#pragma once

#include <string>

namespace talweg::fabric {

class TemporaryFile {
 public:
  // In the system's folder for such files, under a name of its own that ends in `suffix`; whoever is told the
  // name may read it. Throws Error{system}.
  TemporaryFile(const std::string& suffix, const std::string& text);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }  // absolute

 private:
  std::string path_;
};

}  // namespace talweg::fabric
