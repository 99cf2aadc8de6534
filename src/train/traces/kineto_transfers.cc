#include "train/traces/kineto_transfers.h"

#include <algorithm>
#include <map>

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
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (calls[i].function >= 0) by_function_.emplace(calls[i].function, i);
  }

  const KinetoTransfer* find(const KinetoTransfer& run) {
    if (run.correlation >= 0) return around(run);
    if (run.function >= 0 && by_function_.size() == calls_.size()) return before(run);
    return first_free(run);
  }

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
  const KinetoTransfer* first_free(const KinetoTransfer& run) {
    while (free_from_ < calls_.size() && taken_[free_from_]) ++free_from_;
    std::size_t found = calls_.size();
    for (std::size_t i = free_from_; i < calls_.size() && calls_[i].begin <= run.begin; ++i) {
      if (taken_[i] || calls_[i].op != run.op) continue;
      const bool same_size = run.elements < 0 || calls_[i].elements < 0 || calls_[i].elements == run.elements;
      if (same_size || found == calls_.size()) found = i;
      if (same_size) break;
    }
    if (found == calls_.size()) return nullptr;
    taken_[found] = true;
    return &calls_[found];
  }

  const std::vector<KinetoTransfer>& calls_;
  std::map<std::int64_t, std::size_t> by_function_;
  std::vector<bool> taken_;
  std::size_t free_from_ = 0;  // all calls before are taken
};

}  // namespace

void pair_transfers(std::vector<KinetoTransfer>& calls, std::vector<KinetoTransfer> recorded,
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
    if (run.correlation < 0) run.called = call->begin;
    if (run.elements < 0) run.elements = call->elements;
    if (run.element_bytes == 0) run.element_bytes = call->element_bytes;
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const KinetoTransfer& a, const KinetoTransfer& b) { return a.called < b.called; });
}

}  // namespace talweg::train
