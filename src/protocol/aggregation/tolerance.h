// Rounds that end without some of their workers: a switch's part of sums of which a bounded part may be lost.
//
// How many rounds of an operation may end without any one worker is said in each contribution, by all workers
// the same. Once half of a round's contributions have come it lingers for the rest: for as long as the second
// half of other rounds takes to come. Then it ends without those who are missing, if of each of them
//
//   - fewer rounds of this operation have ended without it than may,
//   - the column's round before this one was heard, in time or late: two in a row never end without it,
//   - and, in the column's first round of the operation, something of a slot behind this one has come: it is
//     lost and not late. A worker that has not begun is waited for, as no bound would cover it.
//
// Why a column then needs three cells, and no more: a round begins in the cell of the third one before it,
// once the one before it has ended. Each worker was heard in that one, and so has the results of all before
// it; or it was absent there, and so heard in the second one before, and has the result of the third, which
// alone is given up.
//
// A worker that comes late is answered with the result. All zero: nothing has happened.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "protocol/aggregation/round_timer.h"

namespace talweg::protocol {

struct Attendance {
  std::uint32_t operation;  // the last that the worker was heard in
  std::uint16_t absences;   // rounds of it that have ended without it
  std::uint16_t slot;       // the last one that it was heard of in it
};

// Rounds that linger, one of a column at most, in the order in which they began to: an intrusive list in lent
// memory.
struct Lingering {
  std::int64_t since_ns;
  std::uint32_t before, after;  // columns, from 1 on; 0: none
  bool listed;
};

class LingeringRounds {
 public:
  // `rounds[i]` is that of column i.
  explicit LingeringRounds(std::span<Lingering> rounds) : rounds_(rounds) {}

  bool empty() const { return first_ == 0; }
  std::uint32_t first() const { return first_ - 1; }
  std::int64_t since_ns(std::uint32_t column) const { return rounds_[column].since_ns; }
  bool has(std::uint32_t column) const { return rounds_[column].listed; }
  void add(std::uint32_t column, std::int64_t now_ns) {
    rounds_[column] = {now_ns, last_, 0, true};
    (last_ != 0 ? rounds_[last_ - 1].after : first_) = column + 1;
    last_ = column + 1;
  }
  void remove(std::uint32_t column) {
    const Lingering round = rounds_[column];
    if (!round.listed) return;
    (round.before != 0 ? rounds_[round.before - 1].after : first_) = round.after;
    (round.after != 0 ? rounds_[round.after - 1].before : last_) = round.before;
    rounds_[column].listed = false;
  }

 private:
  std::span<Lingering> rounds_;
  std::uint32_t first_ = 0, last_ = 0;
};

// How long rounds linger: a mean and four deviations of how long the second half of their contributions takes
// to come, of late ones too. So it is no less than what is late, and not lost, mostly takes.
class LingerTime {
 public:
  static constexpr std::uint32_t kWarmUp = 20;  // operations that lose nothing, as of AdaptiveDeadline
  static constexpr std::int64_t kLeastNs = 100'000;
  static constexpr std::int64_t kUnknownNs =
      1'000'000;                                 // where sums have no more blocks than there are columns
  static constexpr std::int64_t kMostMeans = 4;  // one that took longer counts as this: something was lost

  // `fixed_ns`: 0: it is learnt.
  explicit LingerTime(std::int64_t fixed_ns) : fixed_ns_(fixed_ns) {}

  void begins(std::uint32_t operation) {
    if (operations_ > 0 && static_cast<std::int32_t>(operation - newest_) <= 0) return;
    newest_ = operation;
    ++operations_;
  }
  void measured(std::int64_t took_ns) {
    const std::int64_t mean = timer_.mean_ns();
    timer_.measured(mean > 0 ? std::min(took_ns, std::max(kMostMeans * mean, kLeastNs)) : took_ns);
  }
  bool is_known() const { return fixed_ns_ > 0 || operations_ > kWarmUp; }
  std::int64_t ns() const { return fixed_ns_ > 0 ? fixed_ns_ : timer_.wait_ns(0); }

 private:
  std::int64_t fixed_ns_;
  std::uint64_t operations_ = 0;
  std::uint32_t newest_ = 0;
  RoundTimer timer_{{.first_ns = kUnknownNs, .least_ns = kLeastNs}};
};

}  // namespace talweg::protocol
