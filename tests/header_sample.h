// The sample of a file form that stands in a header's first comment, so that tests can read it as users
// would.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

namespace talweg {

// What is indented below the line that says "File form", without the comment's marks. Throws where there is
// none.
inline std::string header_sample(const std::string& path) {
  std::ifstream in(path);
  std::string sample;
  bool inside = false;
  for (std::string line; std::getline(in, line) && line.starts_with("//");) {
    if (line.find("File form") != std::string::npos) {
      inside = true;
    } else if (inside && line.starts_with("//   ")) {
      sample += line.substr(5) + '\n';
    } else if (!sample.empty()) {
      break;
    }
  }
  if (sample.empty()) throw std::runtime_error(path + " has no sample of a file form");
  return sample;
}

}  // namespace talweg
