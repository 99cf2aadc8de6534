// A file that is there as long as the object is.
#pragma once

#include <string>

namespace talweg::fabric {

class TemporaryFile {
 public:
  enum class For { anybody, owner };  // who is told the name and may read it
  // In the system's folder for such files, under a name of its own that ends in `suffix`. Throws
  // Error{system}.
  TemporaryFile(const std::string& suffix, const std::string& text, For whom = For::anybody);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }  // absolute

 private:
  std::string path_;
};

}  // namespace talweg::fabric
