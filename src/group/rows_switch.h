// RowsSwitch: sums of sparse tensors (include/talweg/sparse_rows.h) by the switches of a group, in a job of
// their own, which is joined once all ranks have agreed on the first call that it could make.
//
//   by_switch.line_up(call, words);               // before ranks tell each other their words
//   if (by_switch.decide(call, all))              // of all ranks, which find the same
//     if (auto summed = by_switch.sum(call, deadline_ns)) ...
//   ... by trees, also where a switch was lost on the way: no rank has a result then
//   by_switch.learn(call, all, rows);             // of the result, whichever way it was made
//   by_switch.leave(...)                          // or: the call has ended before it was decided
//
// What a sum takes depends on how many rows are on any rank. Of the first one of a shape that is worked out
// as if ranks drew their rows independently of each other; then as many times what all ranks have together as
// it was in the last one.
//
// Calls are made one at a time, as turn() sees to, which waits no longer than a call may take.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>

#include "forest/cost.h"
#include "group/bell.h"
#include "group/group_impl.h"
#include "group/row_prices.h"
#include "group/row_words.h"
#include "group/switch_streams.h"
#include "protocol/aggregation/row_sums.h"
#include "talweg/sparse_rows.h"

namespace talweg::group {

class RowsSwitch {
 public:
  // By its switches, which it has; `group` keeps this.
  explicit RowsSwitch(GroupImpl& group) : group_(group), bell_(std::make_shared<Bell>()) {}

  // A call's, until it ends.
  struct EndTurn {
    void operator()(RowsSwitch* of) const { of->end_turn(); }
  };
  using Turn = std::unique_ptr<RowsSwitch, EndTurn>;
  // Throws Error{timeout} where another call of this rank has not ended by then.
  Turn turn(std::int64_t deadline_ns);
  // What this rank says of a call that is sound here. Does not throw.
  void line_up(const RowsCall& call, RowWords& words);
  // Whether a call that all ranks agree on goes by them, which begins it.
  bool decide(const RowsCall& call, std::span<const RowWords> said);
  // A call that has failed before. `all`: on all ranks alike; else the job ends, and is joined anew.
  void leave(bool all);
  // Empty: no rank has a result. Throws Error where ranks are gone, and at the deadline.
  std::optional<protocol::RowSums::Summed> sum(const RowsCall& call, std::int64_t deadline_ns);
  void learn(const RowsCall& call, std::span<const RowWords> said, std::size_t rows);

 private:
  struct Prices {
    float words = 0;     // what each rank tells each other one, in seconds
    float per_byte = 0;  // of what ranks give each other
    float on_links = 0;  // of a byte on the slowest link of a rank
  };
  using Shape =
      std::tuple<std::int64_t, std::size_t, DataType>;  // rows that there could be, of so many elements
  static Shape shape_of(const RowsCall& call) { return {call.limit, call.width, call.type}; }
  std::optional<wire::AggregationFormat> format_of(const RowsCall& call) const;
  void end_turn();
  void open(const RowsCall& call);
  Prices prices();
  float learnt(const RowsCall& call) const;
  double rows_on_any(const RowsCall& call, std::span<const RowWords> said) const;
  std::optional<protocol::SumForm> choose(const RowsCall& call, std::span<const RowWords> said) const;

  GroupImpl& group_;
  const std::shared_ptr<Bell> bell_;
  std::mutex turn_;
  std::condition_variable turn_over_;
  bool in_turn_ = false;                      // a call is
  std::shared_ptr<SwitchStreams> streams_;    // null: it has not been joined
  std::shared_ptr<protocol::QueuedSum> sum_;  // in line
  protocol::Rows rows_;                       // of it
  protocol::SumTask task_;
  std::map<Shape, float> learnt_;  // rows on any rank, of each that all have together
  Prices prices_;
  std::optional<MergePrices> merging_;  // once they have been measured
  std::shared_ptr<const forest::CostModel> prices_for_;
};

}  // namespace talweg::group
