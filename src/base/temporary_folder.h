// Where files go that nobody has named a place for.
#pragma once

#include <string>

namespace talweg {

// $TMPDIR; or /tmp, where that is no folder.
std::string temporary_folder();

}  // namespace talweg
