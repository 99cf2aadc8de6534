// A file's new text while it is being written: beside the file, which it replaces once it is whole.
#pragma once

#include <string>
#include <system_error>

namespace talweg::text {

// How to use it: Draft draft(path); if (!draft.failed()) write the file draft.name(); draft.replace().
class Draft {
 public:
  // Makes a new file PATH.<process>.part that is nobody else's: what a stranger, or an ended process, has
  // left under that name goes. If `path` is a link to a file, it stays, and leads to the new file.
  explicit Draft(const std::string& path);
  // Removes the draft unless it has replaced the file.
  ~Draft();
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  std::error_code failed() const { return failed_; }  // why there is no draft
  const std::string& name() const { return name_; }
  std::error_code replace();

 private:
  std::string file_, name_;
  std::error_code failed_;
  bool there_ = false;
};

}  // namespace talweg::text
