// Rejoining: when a group's part in the sums of a switch tries to join it again (switch_stream.h), and for
// how long it waits for the other ranks each time.
//
// A switch that refuses a group, such as a full one, is asked more and more seldom: the pause before each try
// is twice the one before, from 0.5 s to 30 s, less a part that is drawn. Ranks count their own refusals and
// draw their own parts, so one may have its place while another pauses. The place is the job's: who has been
// refused waits there for as long as the longest pause, by when all have tried.
//
// Groups that are made of others begin with pauses of 2 s: once a switch is there again, the group that was
// joined first is the first to have a place, mostly.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/random.h"

namespace talweg::group {

class Rejoining {
 public:
  using Pause = std::chrono::milliseconds;
  static constexpr Pause kFirst{500}, kFirstOfPart{2'000}, kLongest{30'000};
  // A group's ranks join within moments of each other. What has not come of it by then may never.
  static constexpr Pause kWindow{3'000};

  // `part`: of a group that is made of another one. `seed`: which no two ranks share.
  Rejoining(bool part, std::uint64_t seed)
      : first_(part ? kFirstOfPart : kFirst), next_(first_), random_(seed) {}

  void joined() {
    next_ = first_;
    refused_ = false;
  }
  // Before the next try, where this one has been refused.
  Pause refused() {
    const Pause whole = next_;
    next_ = std::min(2 * next_, kLongest);
    refused_ = true;
    return Pause(whole.count() -
                 static_cast<std::int64_t>(random_.uniform() * 0.5 * static_cast<double>(whole.count())));
  }
  // Where it has failed otherwise.
  Pause failed() const { return first_; }
  // For which a try waits for the other ranks.
  Pause window() const { return refused_ ? kLongest + kWindow : kWindow; }

 private:
  const Pause first_;
  Pause next_;
  bool refused_ = false;  // since it was joined last
  Random random_;
};

}  // namespace talweg::group
