// Background: one thread for what takes longer than a call can wait. It is nice to others, and works on one
// task after the other in the order in which they were started.
//
//   Background background;
//   auto task = background.start([=](forest::WorkLimit& limit) { return plan(limit); });
//   if (task.done()) use(task.take());        // looked at now and then; nobody waits for it
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "forest/work_limit.h"

namespace talweg::steer {

class Background {
  struct Job;
  using Work = std::function<std::shared_ptr<const void>(forest::WorkLimit&)>;
  class Handle {
   public:
    explicit Handle(std::shared_ptr<Job> job) : job_(std::move(job)) {}
    Handle(Handle&&) = default;
    ~Handle();
    bool done() const;
    std::shared_ptr<const void> take();

   private:
    std::shared_ptr<Job> job_;
  };

 public:
  // Whoever started it. Letting go of it gives the task up.
  template <class Result>
  class Task {
   public:
    bool done() const { return handle_.done(); }
    // Once, when done. Null when the work has thrown, or the system has no thread for it.
    std::shared_ptr<const Result> take() { return std::static_pointer_cast<const Result>(handle_.take()); }

   private:
    friend class Background;
    explicit Task(Handle handle) : handle_(std::move(handle)) {}
    Handle handle_;
  };

  Background() = default;
  // Gives up what it is at, and waits until that spends again.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // From any thread. Work spends from the limit that it is given, which is how it is given up; it and what it
  // holds end before the task is done. The thread starts with the first task.
  template <class Does>
  auto start(Does does) {
    using Result = std::invoke_result_t<Does&, forest::WorkLimit&>;
    return Task<Result>(begin([work = std::move(does)](forest::WorkLimit& limit) mutable {
      return std::make_shared<const Result>(work(limit));
    }));
  }

 private:
  Handle begin(Work work);
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Job> current_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talweg::steer
