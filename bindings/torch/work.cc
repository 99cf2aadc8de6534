#include "work.h"

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "group/switch_terms.h"
#include "types.h"

namespace talweg::torch_face {

TalwegWork::TalwegWork(int rank, std::uint64_t sequence, Description description,
                       std::shared_ptr<Completer::Queue> completer, std::weak_ptr<Group> group)
    : Work(rank, description.type, description.title, description.inputs),
      sequence_(sequence),
      description_(std::move(description)),
      completer_(std::move(completer)),
      group_(std::move(group)) {}

void TalwegWork::launch(std::vector<WorkPtr> parts, std::function<void()> finish, std::exception_ptr error) {
  parts_ = std::move(parts);
  finish_ = std::move(finish);
  launch_error_ = std::move(error);
  if (parts_.empty()) {
    settle();
    return;
  }
  pending_ = parts_.size();
  for (const WorkPtr& part : parts_) {
    // The callback keeps this work, and so the tensors, alive until the part no longer needs them; it lets go
    // when it has run, or the part and the work would own each other for ever.
    auto self = c10::intrusive_ptr<TalwegWork>::reclaim_copy(this);
    part->on_done([self = std::move(self)]() mutable {
      const auto held = std::move(self);
      held->part_is_done();
    });
  }
}

void TalwegWork::part_is_done() {
  if (pending_.fetch_sub(1) == 1) settle();
}

void TalwegWork::settle() {
  std::exception_ptr error = launch_error_;
  for (const WorkPtr& part : parts_)
    if (!error) error = part->error();
  if (!error && finish_) {
    try {
      finish_();
    } catch (...) {
      error = std::current_exception();
    }
  }
  finish_ = nullptr;
  finish(error ? as_torch_error(error) : nullptr);
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    wanted = future_ != nullptr && !std::exchange(future_is_completed_, true);
  }
  if (wanted) {
    auto self = c10::intrusive_ptr<TalwegWork>::reclaim_copy(this);
    completer_->post([self] { self->complete_future(); });
  }
}

void TalwegWork::complete_future() {
  if (const auto error = exception()) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(description_.outputs));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> TalwegWork::getFuture() {
  bool complete_here = false;
  {
    const std::lock_guard lock(mutex_);
    if (!future_)
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    complete_here = completed_ && !std::exchange(future_is_completed_, true);
  }
  if (complete_here) complete_future();
  return future_;
}

bool TalwegWork::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const WorkPtr& part : parts_) {
    try {
      if (timeout == kNoTimeout) {
        part->wait();
        continue;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      TORCH_CHECK_WITH(DistBackendError, part->wait_for(std::max(left, std::chrono::milliseconds(0))),
                       description_.title, " number ", sequence_, " on rank ", rank_, " was not done within ",
                       timeout.count(), " ms");
    } catch (const Error&) {
      // settle() has seen it or will, and the outcome below is the whole work's.
    }
  }
  return Work::wait();
}

std::vector<at::Tensor> TalwegWork::result() {
  TORCH_CHECK(isCompleted(), "talweg: wait for ", description_.title, " before asking for its result");
  return description_.outputs;
}

int TalwegWork::sourceRank() const {
  return parts_.empty() ? -1 : parts_.front()->source_rank();
}

const char* TalwegWork::way() const {
  return parts_.size() == 1 ? group::way_of(*parts_.front()) : "";
}

void TalwegWork::abort() {
  if (const auto group = group_.lock())
    group->abort(std::string("Work.abort of ") + description_.title + " number " + std::to_string(sequence_));
}

}  // namespace talweg::torch_face
