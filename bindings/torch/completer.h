// The threads that complete futures and so run users' callbacks.
//
// A callback is arbitrary code: it takes Python's lock, it may start another collective and wait for its
// future (PowerSGD's communication hook does). On the thread that drives the group that wait would never end,
// and with a fixed number of threads enough such callbacks would use them up. So there is always a thread
// free: one is added whenever a job finds all busy, which normally leaves exactly one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace talweg::torch_face {

class Completer {
 public:
  using Job = std::function<void()>;

  // Outlives the Completer: works in flight hold it. Jobs must not throw.
  class Queue {
   public:
    // Runs the job on a thread of its own choice; on this one when the Completer is gone.
    void post(Job job);

   private:
    friend class Completer;
    static void run(const std::shared_ptr<Queue>& queue);

    std::weak_ptr<Queue> self_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    std::size_t free_ = 0;  // threads without a job, the ones just starting included
    bool stopped_ = false;
    std::vector<std::thread> threads_;
  };

  Completer();
  ~Completer() { stop(); }
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // Blocks until the jobs posted so far are done and the threads are gone; later jobs run where they are
  // posted. Needs Python's lock to be free. Python must not end before this: a thread that wants its lock
  // then is killed.
  void stop();

  const std::shared_ptr<Queue>& queue() const { return queue_; }

 private:
  const int process_;
  const std::shared_ptr<Queue> queue_;
};

}  // namespace talweg::torch_face
