#include "protocol/aggregation/result_group.h"

#include <algorithm>

namespace talweg::protocol {

using wire::GroupWord;

bool ResultGroup::all(Said what) const {
  return std::ranges::all_of(said_, [&](Said said) { return said >= what; });
}

void ResultGroup::turn_off() {
  was_used_ = by_group();
  state_ = State::off;
  next_ns_ = std::numeric_limits<std::int64_t>::max();
}

void ResultGroup::says(std::size_t worker, GroupWord word, std::int64_t now_ns) {
  if (worker >= said_.size() || state_ == State::off) return;
  if (word == GroupWord::lost) {
    turn_off();
    deaf_.push_back(static_cast<std::uint16_t>(worker));
  } else if (word == GroupWord::joined && state_ == State::joining) {
    said_[worker] = Said::joined;
    if (!all(Said::joined)) return;
    state_ = State::probing;
    next_ns_ = now_ns;
  } else if (word == GroupWord::heard && state_ == State::probing) {
    said_[worker] = Said::heard;
    if (!all(Said::heard)) return;
    state_ = State::by_group;
    next_ns_ = std::numeric_limits<std::int64_t>::max();
  }
}

bool ResultGroup::probe(std::int64_t now_ns) {
  if (state_ != State::probing) return false;
  if (probes_ == kProbes) {
    turn_off();
    for (std::size_t w = 0; w < said_.size(); ++w)
      if (said_[w] != Said::heard) deaf_.push_back(static_cast<std::uint16_t>(w));
    return false;
  }
  next_ns_ = now_ns + std::min(kLongestNs, kFirstNs << probes_);
  ++probes_;
  return true;
}

}  // namespace talweg::protocol
