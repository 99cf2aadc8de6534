// Orders: what other threads want done by a thread that has its own things to do, between two of these.
//
//   orders.give([&] { ... });               // in any other thread: returns once it has been done
//   while (...) { poll(..., orders.fd()); if (orders.given()) orders.obey(); }     // in the thread that obeys
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "live/system.h"

namespace talweg::live {

class Orders {
 public:
  Orders() : wake_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")) {}

  void give(const std::function<void()>& what) {
    std::promise<void> done;
    {
      const std::lock_guard guard(mutex_);
      waiting_.emplace_back([&] {
        what();
        done.set_value();
      });
      given_ = true;
      // Under the lock, as it is read: it is readable exactly while there are some.
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
    }
    done.get_future().wait();
  }

  // Readable while there are some.
  int fd() const { return wake_.get(); }
  bool given() const { return given_; }
  void obey() {
    std::vector<std::function<void()>> all;
    {
      const std::lock_guard guard(mutex_);
      all.swap(waiting_);
      given_ = false;
      std::uint64_t count = 0;
      [[maybe_unused]] const auto n = ::read(wake_.get(), &count, sizeof count);
    }
    for (const auto& what : all) what();
  }

 private:
  const FileDescriptor wake_;
  std::mutex mutex_;  // never taken for a datagram
  std::vector<std::function<void()>> waiting_;
  std::atomic<bool> given_{false};
};

}  // namespace talweg::live
