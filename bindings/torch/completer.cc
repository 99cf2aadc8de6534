#include "completer.h"

#include <unistd.h>

#include <utility>

namespace talweg::torch_face {

void Completer::Queue::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      jobs_.push_back(std::move(job));
      if (jobs_.size() > free_) {
        threads_.emplace_back(&Queue::run, self_.lock());
        ++free_;
      }
      changed_.notify_one();
      return;
    }
  }
  job();
}

void Completer::Queue::run(const std::shared_ptr<Queue>& queue) {
  std::unique_lock lock(queue->mutex_);
  while (true) {
    queue->changed_.wait(lock, [&] { return queue->stopped_ || !queue->jobs_.empty(); });
    if (queue->jobs_.empty()) return;
    --queue->free_;
    Job job = std::move(queue->jobs_.front());
    queue->jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before the lock is taken again
    lock.lock();
    ++queue->free_;
  }
}

Completer::Completer() : process_(::getpid()), queue_(std::make_shared<Queue>()) {
  queue_->self_ = queue_;
}

void Completer::stop() {
  if (::getpid() != process_) {
    // A forked child: the threads are not here, and a lock of theirs may be held for ever.
    static_cast<void>(new std::shared_ptr<Queue>(queue_));
    return;
  }
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(queue_->mutex_);
    queue_->stopped_ = true;
    threads.swap(queue_->threads_);
  }
  queue_->changed_.notify_all();
  for (std::thread& thread : threads) {
    // A callback may hold the last reference to its process group.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace talweg::torch_face
