#include "train/traces/kineto_transfers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

namespace talweg::train {
namespace {

bool begins_earlier(const KinetoTransfer& a, const KinetoTransfer& b) {
  return a.begin < b.begin;
}

// record_param_comms stands within the call.
void add_recorded(KinetoTransfer& call, const std::vector<KinetoTransfer>& recorded) {
  const auto at = std::lower_bound(recorded.begin(), recorded.end(), call, begins_earlier);
  if (at == recorded.end() || at->begin > call.end) return;
  if (call.elements < 0) call.elements = at->elements;
  if (call.element_bytes == 0) call.element_bytes = at->element_bytes;
}

class CallFinder {
 public:
  explicit CallFinder(const std::vector<KinetoTransfer>& calls) : calls_(calls), taken_(calls.size(), false) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].function >= 0) by_function_.emplace(calls[i].function, i);
      by_op_[calls[i].op].calls.push_back(i);
      by_size_[{calls[i].op, std::max<std::int64_t>(-1, calls[i].elements)}].calls.push_back(i);
    }
  }

  const KinetoTransfer* find(const KinetoTransfer& run) {
    if (run.correlation >= 0) return around(run);
    if (run.function >= 0 && by_function_.size() == calls_.size()) return before(run);
    return first_free(run);
  }
  std::size_t looked_at() const { return looked_at_; }

 private:
  // The run's id is given out within the call.
  const KinetoTransfer* before(const KinetoTransfer& run) const {
    const auto at = by_function_.lower_bound(run.function);
    return at == by_function_.begin() ? nullptr : &calls_[std::prev(at)->second];
  }
  const KinetoTransfer* around(const KinetoTransfer& run) const {
    const auto behind =
        std::upper_bound(calls_.begin(), calls_.end(), run.called,
                         [](std::int64_t time, const KinetoTransfer& c) { return time < c.begin; });
    if (behind == calls_.begin()) return nullptr;
    const KinetoTransfer& call = *std::prev(behind);
    return call.end >= run.called ? &call : nullptr;
  }
  // Of its size, or of one that is not known; if there is none, of any size.
  const KinetoTransfer* first_free(const KinetoTransfer& run) {
    std::size_t found = kNone;
    if (run.elements >= 0)
      found = std::min(first_of(by_size_, {run.op, run.elements}), first_of(by_size_, {run.op, -1}));
    if (found == kNone || calls_[found].begin > run.begin) found = first_of(by_op_, run.op);
    if (found == kNone || calls_[found].begin > run.begin) return nullptr;
    taken_[found] = true;
    return &calls_[found];
  }
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Free {
    std::vector<std::size_t> calls{};  // in order
    std::size_t from = 0;              // all before are taken
  };
  // What is taken is passed over once in each list that it is in.
  template <class Key>
  std::size_t first_of(std::map<Key, Free>& lists, const std::type_identity_t<Key>& key) {
    const auto at = lists.find(key);
    if (at == lists.end()) return kNone;
    Free& list = at->second;
    for (; list.from < list.calls.size(); ++list.from) {
      ++looked_at_;
      if (!taken_[list.calls[list.from]]) return list.calls[list.from];
    }
    return kNone;
  }

  const std::vector<KinetoTransfer>& calls_;
  std::map<std::int64_t, std::size_t> by_function_;
  std::map<Collective, Free> by_op_;
  std::map<std::pair<Collective, std::int64_t>, Free> by_size_;
  std::vector<bool> taken_;
  std::size_t looked_at_ = 0;
};

// What was under way on each thread.
template <class Transfer>
class Threads {
 public:
  void add(Transfer& t) { by_thread_[t.thread].emplace(t.begin, &t); }
  Transfer* at(std::int32_t thread, std::int64_t time) const {
    const auto found = by_thread_.find(thread);
    if (found == by_thread_.end()) return nullptr;
    const auto behind = found->second.upper_bound(time);
    if (behind == found->second.begin()) return nullptr;
    Transfer* const last = std::prev(behind)->second;
    return time <= last->end ? last : nullptr;
  }

 private:
  std::map<std::int32_t, std::map<std::int64_t, Transfer*>> by_thread_;
};

}  // namespace

void take_copies(const std::vector<KinetoTransfer>& calls, std::vector<KinetoTransfer>& runs,
                 std::deque<KinetoKernel>& kernels) {
  Threads<const KinetoTransfer> of_calls;
  Threads<KinetoTransfer> of_runs;
  for (const KinetoTransfer& call : calls) of_calls.add(call);
  std::map<std::ptrdiff_t, KinetoTransfer*> of_call;
  for (KinetoTransfer& run : runs) {
    // Where it begins on the caller's own thread, all that this launches meanwhile would be taken for the
    // run's.
    if (run.correlation >= 0 || of_calls.at(run.thread, run.begin) != nullptr) continue;
    of_runs.add(run);
    if (run.call >= 0) of_call.emplace(run.call, &run);
  }
  std::map<KinetoTransfer*, std::int64_t> copied_out;  // when the first began
  std::erase_if(kernels, [&](const KinetoKernel& k) {
    KinetoTransfer* run = nullptr;
    if (k.copies_in) {
      run = of_runs.at(k.thread, k.launched);
      if (run != nullptr) run->end = std::max(run->end, k.end);
    } else if (k.copies_out) {
      const KinetoTransfer* const call = of_calls.at(k.thread, k.launched);
      const auto found = call == nullptr ? of_call.end() : of_call.find(call - calls.data());
      if (found == of_call.end()) return false;
      run = found->second;
      const auto [first, is_new] = copied_out.emplace(run, k.begin);
      if (!is_new) first->second = std::min(first->second, k.begin);
    }
    return run != nullptr;
  });
  // What a device copies out later than it was sent is of another clock, or not what was sent.
  for (const auto& [run, begin] : copied_out)
    if (begin <= run->end) run->begin = std::max(run->begin, begin);
}

std::size_t pair_transfers(std::vector<KinetoTransfer>& calls, std::vector<KinetoTransfer> recorded,
                           std::vector<KinetoTransfer>& runs) {
  std::stable_sort(calls.begin(), calls.end(), begins_earlier);
  std::stable_sort(recorded.begin(), recorded.end(), begins_earlier);
  std::stable_sort(runs.begin(), runs.end(), begins_earlier);
  for (KinetoTransfer& call : calls) add_recorded(call, recorded);
  if (calls.empty()) calls = std::move(recorded);
  CallFinder finder(calls);
  for (KinetoTransfer& run : runs) {
    const KinetoTransfer* call = finder.find(run);
    if (call == nullptr || call->op != run.op) continue;
    run.call = call - calls.data();
    if (run.correlation < 0) run.called = call->begin;
    if (run.elements < 0) run.elements = call->elements;
    if (run.element_bytes == 0) run.element_bytes = call->element_bytes;
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const KinetoTransfer& a, const KinetoTransfer& b) { return a.called < b.called; });
  return finder.looked_at();
}

}  // namespace talweg::train
