// BoundedSwitch: all_reduces of which a bounded part may be lost (bounded.h), by the switches of the group
// that these sums were made of, in jobs of their own, whose rounds may end without some ranks
// (protocol/aggregation/tolerance.h).
//
//   word = by_switch.line_up(count, type);      // before ranks agree on a call: for CallWords::by_switch
//   if (by_switch.decide(words))                // of all ranks, which find the same
//     if (auto report = by_switch.sum(call, data, deadline_ns)) return *report;
//   ... by datagrams, also where a switch was lost on the way: no rank has a result then
//   by_switch.leave(...)                        // or: the call has ended before it was decided
//
// After the sum ranks tell each other whether they have it, and which of the job's sums it was, as StreamRun
// does (protocol/streaming/stream_run.h). Until then each still has what it contributed.
//
// Of one thread at a time, but for expect().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "group/bell.h"
#include "group/bounded.h"
#include "group/bounded_terms.h"
#include "group/group_impl.h"
#include "group/switch_streams.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

class BoundedSwitch {
 public:
  // Why sums with these options never go by `switches`, for people; empty: they may. All ranks have to find
  // the same, but for classes: they tell each other.
  static std::string complaint(const SwitchStreams& switches, const BoundedLossOptions& options);
  // `group`: with the ranks of `switches`, in the same order. Its switches join in threads of their own.
  BoundedSwitch(std::shared_ptr<GroupImpl> group, const SwitchStreams& switches,
                const BoundedLossOptions& options, const BoundedSeams& seams);

  // What this rank says of a call: 0, it is not for the switches here; else what all ranks have to say. Does
  // not throw.
  std::uint64_t line_up(std::size_t count, DataType type);
  // Whether the call goes by them, which begins it.
  bool decide(std::span<const CallWords> said);
  // A call that has failed before. `all`: on all ranks alike; else the jobs end, and are joined anew.
  void leave(bool all);
  // `data`: call.count elements that nobody changes meanwhile: the input, and what the residual held. The
  // residual, where there is one, has them too, and afterwards what was missing of them. Empty: no rank has a
  // result, and call.out may have been written to. Throws Error where ranks are gone, and at the deadline.
  std::optional<LossReport> sum(const BoundedCall& call, const std::byte* data, std::int64_t deadline_ns);
  // How the last call that line_up() was asked of went, if it did not fail.
  protocol::SumWay way() const { return way_; }

  // Of such a call now.
  struct Expected {
    std::optional<double> seconds;   // empty: not measured
    std::uint64_t most_missing = 0;  // elements of each rank's
    std::uint32_t exact_sums = 0;    // of a job's first, of which nothing may be missing
    std::uint32_t ppm = 0;
    std::string where;    // "127.0.0.1:4711 (environment), 12 sums"
    std::string why_not;  // it would not go by them; empty: it would
  };
  Expected expect(std::size_t count, DataType type) const;

 private:
  struct Prices {
    double words = 0;      // what each rank tells each other one
    double otherwise = 0;  // all of a call by datagrams
  };
  std::uint64_t word_of(std::size_t count, DataType type);
  Prices prices_of(std::size_t count, std::size_t element_bytes) const;
  std::optional<double> seconds_of(std::size_t count, DataType type) const;
  LossReport report(const BoundedCall& call, const protocol::SumLosses& losses) const;

  const std::shared_ptr<GroupImpl> group_;
  const std::uint32_t ppm_;
  const LossPolicy policy_;
  const std::shared_ptr<Bell> bell_;
  std::shared_ptr<SwitchStreams> streams_;
  std::shared_ptr<protocol::QueuedSum> sum_;  // in line
  protocol::SumTask task_;
  protocol::SumWay way_ = protocol::SumWay::none;
  mutable std::mutex mutex_;  // of what calls were predicted to take
  mutable std::map<std::pair<std::size_t, std::size_t>, Prices> prices_;
  mutable std::shared_ptr<const forest::CostModel> prices_for_;
};

}  // namespace talweg::group
