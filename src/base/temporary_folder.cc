#include "base/temporary_folder.h"

#include <filesystem>
#include <system_error>

namespace talweg {

std::string temporary_folder() {
  std::error_code failure;
  const std::string folder = std::filesystem::temp_directory_path(failure).string();
  return failure ? "/tmp" : folder;
}

}  // namespace talweg
