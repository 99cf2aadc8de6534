// What the tests of launches share: output into files, and waiting for things that take an unknown time.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fabric/launcher.h"

namespace talweg::fabric {

// Polls until `condition` holds; gives up (false) only where something is surely broken.
inline bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// As /proc writes it: R running, S sleeping, T stopped, Z zombie; 0: there is no such process.
inline char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return std::getline(file, text) ? text.at(text.rfind(')') + 2) : '\0';
}

// True while the process runs; a zombie does not.
inline bool alive(pid_t pid) {
  const char state = state_of(pid);
  return state != '\0' && state != 'Z';
}

class InScratchFolder : public testing::Test {
 protected:
  InScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "talweg-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~InScratchFolder() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& file) const { return folder_ + "/" + file; }
  std::string read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(path(file)).rdbuf();
    return text.str();
  }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path(file)) << text; }

 private:
  std::string folder_;
};

}  // namespace talweg::fabric
