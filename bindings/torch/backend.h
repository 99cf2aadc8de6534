// The c10d backend `talweg`: every method turns its tensors into runs of elements, starts the collective on a
// talweg::Group and returns a TalwegWork. Errors of a call that can never work are thrown at once; errors
// that need the other ranks come out of the Work.
//
// Thread rule: as talweg::Group, any thread may call. Methods may block for Python-free work only; callers
// (torch's own bindings) have let go of Python's lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>  // which headers of torch 2.15 take for known
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "completer.h"
#include "flat.h"
#include "talweg/group.h"
#include "work.h"

namespace talweg::torch_face {

class TalwegBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TorchWork = c10::intrusive_ptr<c10d::Work>;

  // Joins: blocks until all ranks are there, at most `options.timeout`, or TALWEG_TIMEOUT where that is
  // torch's default. `parent`, which may be null, is a group of which all these ranks are members, too: its
  // connections are shared.
  TalwegBackend(const c10d::DistributedBackendOptions& options, const TalwegBackend* parent);
  ~TalwegBackend() override;

  const std::string getBackendName() const override { return "talweg"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  TorchWork broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  TorchWork allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // What torch has no word for: a dense all-reduce that overtakes those with a lower priority
  // (talweg/call.h).
  TorchWork allreduce_with_priority(Tensors& tensors, const c10d::AllreduceOptions& options, int priority);
  TorchWork allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  TorchWork allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  TorchWork reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  TorchWork allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                      const c10d::AllgatherOptions& options) override;
  TorchWork _allgather_base(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& options) override;
  TorchWork allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) override;
  TorchWork allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override;
  TorchWork gather(std::vector<Tensors>& outputs, Tensors& inputs,
                   const c10d::GatherOptions& options) override;
  TorchWork scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                    const c10d::ScatterOptions& options) override;
  TorchWork reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& options) override;
  TorchWork _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& options) override;
  TorchWork reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& options) override;
  TorchWork alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  TorchWork alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  TorchWork send(Tensors& tensors, int destination, int tag) override;
  TorchWork recv(Tensors& tensors, int source, int tag) override;
  TorchWork recvAnysource(Tensors& tensors, int tag) override;
  TorchWork barrier(const c10d::BarrierOptions& options) override;
  // Rank 0 names the ranks that did not come within the time: the first one found, or all of them.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // A group of some of this one's ranks, numbered in the order given, which all of them ask for; null on
  // others.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

  void setSequenceNumberForGroup() override {}  // every rank counts from zero
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  // Ends the group; returns when the callbacks of its futures have run.
  void shutdown() override;

  // What intrusive pointers call when the last strong one goes; the destructor waits for the weak ones.
  void release_resources() override { shutdown(); }

  // The group below; throws torch's DistBackendError after shutdown.
  std::shared_ptr<Group> group() const;

 private:
  using Start = std::function<WorkPtr(Group&, const CallOptions&)>;
  // Everything that calls have in common: counting, tracing, loading, starting, keeping alive, storing.
  // `loads` are filled from their tensors before the start, `stores` written back to theirs after the end.
  TorchWork run(TalwegWork::Description call, std::chrono::milliseconds timeout, std::vector<FlatPtr> loads,
                std::vector<FlatPtr> stores, std::vector<Start> starts, int priority = 0);
  TorchWork all_reduce(const char* operation, c10d::OpType type, const Tensors& tensors,
                       const c10d::AllreduceOptions& options, int priority = 0);
  TorchWork recv_from(const char* title, c10d::OpType type, Tensors& tensors, int source, int tag);

  const std::vector<int64_t> global_ranks_;
  std::atomic<std::uint64_t> sequence_{0};
  mutable std::mutex mutex_;
  std::chrono::milliseconds timeout_;  // under mutex_, as is group_
  std::shared_ptr<Group> group_;
  Completer completer_;
};

}  // namespace talweg::torch_face
