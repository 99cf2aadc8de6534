#include "backend.h"

#include <Python.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <utility>

#include "base/settings.h"
#include "group/environment.h"
#include "store.h"
#include "types.h"

namespace talweg::torch_face {
namespace {

// Python may end a process group with its lock held, while the threads that end with the group may want it.
class WithoutPythonLock {
 public:
  WithoutPythonLock() : saved_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPythonLock() {
    if (saved_ != nullptr) PyEval_RestoreThread(saved_);
  }
  WithoutPythonLock(const WithoutPythonLock&) = delete;
  WithoutPythonLock& operator=(const WithoutPythonLock&) = delete;

 private:
  PyThreadState* const saved_;
};

// What the program asked for. Torch's default says that it asked for nothing: then TALWEG_TIMEOUT holds, if
// it is set.
std::chrono::milliseconds deadline_of(const c10d::DistributedBackendOptions& options) {
  const auto asked = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  if (asked != kBackendDefaultTimeout) return asked;
  if (resolve("TALWEG_TIMEOUT").origin == SettingOrigin::default_value) return asked;
  return group::find_timeout({});
}

int64_t elements(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

at::ScalarType traced_type(const TalwegWork::Description& call) {
  if (!call.inputs.empty()) return call.inputs.front().scalar_type();
  if (!call.outputs.empty()) return call.outputs.front().scalar_type();
  return at::kByte;
}

}  // namespace

TalwegBackend::TalwegBackend(const c10d::DistributedBackendOptions& options, const TalwegBackend* parent)
    : Backend(options.group_rank, options.group_size),
      global_ranks_(options.global_ranks_in_group),
      timeout_(with_torch_errors([&] { return deadline_of(options); })) {
  GroupOptions group_options;
  group_options.rank = options.group_rank;
  group_options.size = options.group_size;
  group_options.store = std::make_shared<TorchStore>(options.store);
  group_options.prefix = "talweg/";
  group_options.timeout = timeout_;
  if (parent != nullptr) group_options.within = parent->group();
  group_ = with_torch_errors([&] { return Group::join(group_options); });
  init();
}

TalwegBackend::~TalwegBackend() {
  shutdown();
}

c10::intrusive_ptr<c10d::Backend::Options> TalwegBackend::getBackendOptions() {
  const std::lock_guard lock(mutex_);
  return c10::make_intrusive<Options>("talweg", timeout_);
}

std::shared_ptr<Group> TalwegBackend::group() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, group_ != nullptr,
                   "talweg: this process group has been shut down (rank ", rank_, ")");
  return group_;
}

c10::intrusive_ptr<c10d::Backend> TalwegBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::ranges::find(ranks, rank_);
  if (mine == ranks.end()) return nullptr;
  c10d::DistributedBackendOptions part;
  part.store = store;
  part.group_rank = static_cast<int>(mine - ranks.begin());
  part.group_size = static_cast<int>(ranks.size());
  part.timeout = options ? options->timeout : getBackendOptions()->timeout;
  part.group_id = options ? options->group_name : "";
  for (const int rank : ranks)
    part.global_ranks_in_group.push_back(global_ranks_.empty() ? rank : global_ranks_.at(rank));
  return c10::make_intrusive<TalwegBackend>(part, this);
}

void TalwegBackend::setTimeout(std::chrono::milliseconds timeout) {
  group()->set_timeout(timeout);
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

void TalwegBackend::abort() {
  group()->abort("the process group was aborted on rank " + std::to_string(rank_));
}

void TalwegBackend::shutdown() {
  const WithoutPythonLock without_lock;
  std::shared_ptr<Group> last;
  {
    const std::lock_guard lock(mutex_);
    last.swap(group_);
  }
  last.reset();  // what is in flight fails now, and its futures with it
  completer_.stop();
}

TalwegBackend::TorchWork TalwegBackend::run(TalwegWork::Description call, std::chrono::milliseconds timeout,
                                            std::vector<FlatPtr> loads, std::vector<FlatPtr> stores,
                                            std::vector<Start> starts, int priority) {
  const auto group = this->group();
  const std::uint64_t sequence = ++sequence_;
  RECORD_PARAM_COMMS_DATA(std::make_tuple(static_cast<int64_t>(sequence), c10d::isP2POp(call.type)),
                          std::make_tuple(pg_uid_, pg_desc_), call.inputs, call.outputs, rank_,
                          std::string(call.title), elements(call.inputs), elements(call.outputs),
                          traced_type(call), std::vector<int64_t>(), std::vector<int64_t>(),
                          global_ranks_.empty() ? 0 : static_cast<int>(global_ranks_.front()), 1, size_);
  CallOptions options;
  options.timeout = std::max(timeout, std::chrono::milliseconds(0));
  options.priority = priority;
  auto work = c10::make_intrusive<TalwegWork>(rank_, sequence, std::move(call), completer_.queue(), group);
  for (const FlatPtr& flat : loads) flat->load();
  std::vector<WorkPtr> parts;
  std::exception_ptr error;
  try {
    for (const Start& start : starts) parts.push_back(start(*group, options));
  } catch (const Error&) {
    error = std::current_exception();
  }
  // Parts that have begun still use the tensors, so their work must exist even when a later one was refused.
  if (error && parts.empty()) std::rethrow_exception(as_torch_error(error));
  work->launch(
      std::move(parts),
      [loads = std::move(loads), stores = std::move(stores)] {
        for (const FlatPtr& flat : stores) flat->store();
      },
      std::move(error));
  return work;
}

}  // namespace talweg::torch_face
