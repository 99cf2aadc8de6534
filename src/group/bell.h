// Bell: rings when a work is done, and can be waited for together with a socket. Works keep it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "live/system.h"

namespace talweg::group {

class Bell {
 public:
  Bell() : fd_(live::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")) {}
  void ring() {
    ++rung_;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
  }
  void silence() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(fd_.get(), &count, sizeof count);
  }
  int fd() const { return fd_.get(); }
  // How often, so far.
  std::size_t rung() const { return rung_; }

 private:
  live::FileDescriptor fd_;
  std::atomic<std::size_t> rung_{0};
};

}  // namespace talweg::group
