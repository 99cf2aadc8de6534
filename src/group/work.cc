#include "group/work.h"

#include "group/world.h"

namespace talweg::group {

bool WorkImpl::test() {
  if (!done())
    if (const auto world = world_.lock()) world->progress();
  return done();
}

void WorkImpl::wait() {
  if (!done())
    if (const auto world = world_.lock()) world->wait(*this, std::nullopt);
  throw_if_failed();
}

bool WorkImpl::wait_for(std::chrono::milliseconds limit) {
  if (!done())
    if (const auto world = world_.lock(); world && !world->wait(*this, limit)) return false;
  throw_if_failed();
  return true;
}

std::exception_ptr WorkImpl::error() {
  if (!done() || outcome_.ok) return nullptr;
  return std::make_exception_ptr(Error(outcome_.code, outcome_.text));
}

void WorkImpl::throw_if_failed() const {
  if (!outcome_.ok) throw Error(outcome_.code, outcome_.text);
}

void WorkImpl::on_done(std::function<void()> callback) {
  if (const auto world = world_.lock()) {
    const auto lock = world->lock();
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

std::shared_ptr<WorkImpl> WorkImpl::complete(const protocol::Outcome& outcome) {
  outcome_ = outcome;
  done_.store(true, std::memory_order_release);
  return std::move(in_flight_);
}

void WorkImpl::run_callbacks() {
  for (const auto& callback : callbacks_) callback();
  callbacks_.clear();
}

}  // namespace talweg::group
