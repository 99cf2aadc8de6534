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
#include <optional>
#include <thread>

#include "forest/forest.h"
#include "forest/work_limit.h"

namespace talweg::steer {

class Background {
  struct Job;

 public:
  using Work = std::function<forest::Forest(forest::WorkLimit&)>;

  // Whoever started it. Letting go of it gives the task up.
  class Task {
   public:
    Task(Task&&) = default;
    ~Task();
    bool done() const;
    // Once, when done. Null when the work has thrown, or the system has no thread for it.
    std::shared_ptr<const forest::Forest> take();

   private:
    friend class Background;
    explicit Task(std::shared_ptr<Job> job) : job_(std::move(job)) {}
    std::shared_ptr<Job> job_;
  };

  Background() = default;
  // Gives up what it is at, and waits until that spends again.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // From any thread. Work spends from the limit that it is given, which is how it is given up. The thread
  // starts with the first task.
  Task start(Work work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Job> current_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talweg::steer
