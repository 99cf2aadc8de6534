// A file of a test's own, which goes with it: tests run beside each other.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

namespace talweg::study {

class NetworkFile {
 public:
  explicit NetworkFile(const std::string& text) {
    const int file = ::mkstemp(path_.data());
    if (file < 0) throw std::runtime_error("no file for a test: " + path_);
    ::close(file);
    std::ofstream(path_) << text;
  }
  ~NetworkFile() { std::remove(path_.c_str()); }
  NetworkFile(const NetworkFile&) = delete;
  NetworkFile& operator=(const NetworkFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "talweg-network-XXXXXX";
};

}  // namespace talweg::study
