// One collective of PyTorch's in flight: one or several of Talweg's, the tensors that it must keep alive, and
// what is left to do with the data at the end.
//
// `wait` drives the group itself. Whoever waits on the future instead (DDP does) is served by the group's
// progress thread and the Completer.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completer.h"
#include "talweg/group.h"

namespace talweg::torch_face {

class TalwegWork : public c10d::Work {
 public:
  struct Description {
    c10d::OpType type;
    const char* title;  // "talweg:all_reduce": the name in profiler traces; a static string
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;  // the value of the future and of result()
  };

  TalwegWork(int rank, std::uint64_t sequence, Description description,
             std::shared_ptr<Completer::Queue> completer, std::weak_ptr<Group> group);

  // Called once, right after construction. `finish` runs on the thread that drives, when all parts have
  // succeeded; what it captures lives until the parts are done in any case. `error`, if any, is the outcome
  // whatever the parts do. No parts: done at once.
  void launch(std::vector<WorkPtr> parts, std::function<void()> finish, std::exception_ptr error = nullptr);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override;
  void abort() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  // As group::way_of(); "" of a collective that is several of Talweg's. Once it is done.
  const char* way() const;

 private:
  void part_is_done();
  void settle();
  void complete_future();

  const std::uint64_t sequence_;
  const Description description_;
  const std::shared_ptr<Completer::Queue> completer_;
  const std::weak_ptr<Group> group_;
  std::vector<WorkPtr> parts_;
  std::function<void()> finish_;
  std::exception_ptr launch_error_;
  std::atomic<std::size_t> pending_{0};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_, as is the next
  bool future_is_completed_ = false;
};

}  // namespace talweg::torch_face
