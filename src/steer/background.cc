#include "steer/background.h"

#include <sys/resource.h>

#include <exception>
#include <limits>
#include <system_error>
#include <utility>

namespace talweg::steer {

namespace {
constexpr int kNice = 10;  // ranks that wait for each other go first
}  // namespace

struct Background::Job {
  Work work;
  std::atomic<bool> unwanted = false;
  std::atomic<bool> done = false;
  std::shared_ptr<const void> result;  // once done
};

Background::Handle::~Handle() {
  if (job_) job_->unwanted = true;
}

bool Background::Handle::done() const {
  return job_->done.load(std::memory_order_acquire);
}

std::shared_ptr<const void> Background::Handle::take() {
  auto result = std::move(job_->result);
  job_.reset();
  return result;
}

Background::~Background() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
    if (current_) current_->unwanted = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Background::Handle Background::begin(Work work) {
  auto job = std::make_shared<Job>();
  job->work = std::move(work);
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(job);
    if (!thread_.joinable()) try {
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error&) {  // no more threads: what was planned at once stays
        waiting_.pop_back();
        job->work = nullptr;
        job->done = true;
      }
  }
  wake_.notify_one();
  return Handle(std::move(job));
}

void Background::run() {
  // Of this thread alone, as Linux has it. Where it is refused, the thread is as any other.
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, kNice));
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      forest::WorkLimit limit(std::numeric_limits<std::int64_t>::max(), [job = current_.get()] {
        return job->unwanted.load(std::memory_order_relaxed);
      });
      limit.spend(0);
      current_->result = current_->work(limit);
    } catch (const std::exception&) {
      // Calls go on with the plan that they have.
    } catch (const forest::WorkLimit::Reached&) {
    }
    current_->work = nullptr;
    current_->done.store(true, std::memory_order_release);
    lock.lock();
    current_.reset();
  }
}

}  // namespace talweg::steer
