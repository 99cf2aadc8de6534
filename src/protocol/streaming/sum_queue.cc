#include <algorithm>

#include "protocol/streaming/sum_stream.h"

namespace talweg::protocol {

void SumQueue::open(std::uint32_t life) {
  close();
  alive_ = true;
  life_ = life;
  sums_ = 0;
}

void SumQueue::close() {
  alive_ = false;
  for (const auto& sum : line_) sum->state = QueuedSum::State::failed;
  line_.clear();
}

std::shared_ptr<QueuedSum> SumQueue::line_up() {
  if (!alive_) return nullptr;
  auto sum = std::make_shared<QueuedSum>();
  sum->life = life_;
  line_.push_back(sum);
  return sum;
}

void SumQueue::go(QueuedSum& sum, const SumTask& task) {
  if (sum.state != QueuedSum::State::undecided) return;
  sum.state = QueuedSum::State::decided;
  sum.task = task;
}

void SumQueue::pass(const QueuedSum& sum) {
  std::erase_if(line_, [&](const auto& other) { return other.get() == &sum; });
}

void SumQueue::abandon(const QueuedSum& sum) {
  if (alive_ && sum.life == life_) close();
}

std::shared_ptr<QueuedSum> SumQueue::next() {
  if (line_.empty() || line_.front()->state != QueuedSum::State::decided) return nullptr;
  std::shared_ptr<QueuedSum> sum = line_.front();
  const SumTask& task = sum->task;
  if (task.rows == nullptr && task.in == task.out && !sum->kept.reset(task.out, task.bytes)) {
    close();
    return nullptr;
  }
  sum->state = QueuedSum::State::running;
  sum->number = ++sums_;
  return sum;
}

void SumQueue::done(QueuedSum& sum) {
  sum.state = QueuedSum::State::done;
  line_.pop_front();
}

}  // namespace talweg::protocol
