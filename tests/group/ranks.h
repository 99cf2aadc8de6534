// Ranks as threads of one process, each with a group of its own, met through a store on loopback.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "talweg/group.h"

namespace talweg {

// Sets an environment variable while it lives. Tests of one program run one after the other.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class TemporaryFile {
 public:
  TemporaryFile() {
    char name[] = "/tmp/talweg-test-XXXXXX";
    const int fd = ::mkstemp(name);
    EXPECT_GE(fd, 0);
    ::close(fd);
    path_ = name;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct ServedStore {
  std::shared_ptr<Store> store;
  int port = 0;
};

// A TCP store on a port of loopback that was free.
inline ServedStore serve_store(std::chrono::steady_clock::time_point until, int first_port) {
  for (int port = first_port; port < first_port + 100; ++port) {
    try {
      return {tcp_store("127.0.0.1", port, true, until), port};
    } catch (const Error&) {
      continue;  // in use
    }
  }
  ADD_FAILURE() << "no port from " << first_port << " on is free";
  return {};
}

inline GroupOptions options_for(int rank, int size, const std::string& store) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.store = file_store(store);
  options.timeout = std::chrono::seconds(60);
  options.interface = "lo";
  return options;
}

// Runs `body` on every rank and rethrows the first exception that escapes one.
inline void run_ranks(int size, const std::function<void(Group&)>& body,
                      const std::function<void(GroupOptions&)>& change = {}) {
  const TemporaryFile store;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        GroupOptions options = options_for(r, size, store.path());
        if (change) change(options);
        const auto group = Group::join(options);
        body(*group);
      } catch (...) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace talweg
