#include "protocol/aggregation/result_group.h"

#include <algorithm>

namespace talweg::protocol {

using wire::GroupWord;

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

ResultGroup::ResultGroup(std::size_t workers, std::int64_t now_ns, const ResultGroupTimes& times)
    : times_(times),
      said_(workers, Said::nothing),
      next_ns_(now_ns + times.join_ns),
      rest_ns_(times.rest_ns) {}

bool ResultGroup::all(Said what) const {
  return std::ranges::all_of(said_, [&](Said said) { return said >= what; });
}

void ResultGroup::begin(std::int64_t now_ns) {
  std::ranges::fill(said_, Said::joined);
  state_ = State::probing;
  probes_ = 0;
  ++attempt_;
  next_ns_ = now_ns;
}

void ResultGroup::turn_off(Why why, std::int64_t now_ns) {
  if (by_group() && now_ns - used_since_ns_ > times_.longest_rest_ns) rest_ns_ = times_.rest_ns;
  state_ = State::off;
  why_ = why;
  deaf_.clear();
  const bool waits = why == Why::not_joined || why == Why::cannot;
  next_ns_ = waits ? kNever : now_ns + rest_ns_;
  if (!waits) rest_ns_ = std::min(2 * rest_ns_, times_.longest_rest_ns);
}

void ResultGroup::turn_off_for(Said less, Why why, std::int64_t now_ns) {
  turn_off(why, now_ns);
  for (std::size_t w = 0; w < said_.size(); ++w)
    if (said_[w] < less) deaf_.push_back(static_cast<std::uint16_t>(w));
}

void ResultGroup::says(std::size_t worker, const wire::SwitchHears& word, std::int64_t now_ns) {
  if (worker >= said_.size() || (state_ == State::off && why_ == Why::cannot)) return;
  if (word.what == GroupWord::cannot) {
    turn_off(Why::cannot, now_ns);
  } else if (word.what == GroupWord::joined) {
    if (said_[worker] != Said::nothing) return;
    said_[worker] = Said::joined;
    if (all(Said::joined)) begin(now_ns);
    return;
  } else if (word.attempt != attempt_ || (word.what == GroupWord::lost && !by_group())) {
    return;
  } else if (word.what == GroupWord::heard) {
    if (state_ != State::probing && !(state_ == State::off && why_ == Why::not_heard)) return;
    said_[worker] = Said::heard;
    std::erase(deaf_, worker);
    if (!all(Said::heard)) return;
    state_ = State::by_group;
    was_used_ = true;
    used_since_ns_ = now_ns;
    next_ns_ = kNever;
    return;
  } else {
    turn_off(Why::lost, now_ns);
  }
  deaf_.push_back(static_cast<std::uint16_t>(worker));
  word_ = word;
}

bool ResultGroup::probe(std::int64_t now_ns) {
  if (now_ns < next_ns_) return false;
  if (state_ == State::joining) turn_off_for(Said::joined, Why::not_joined, now_ns);
  if (state_ == State::off && now_ns >= next_ns_) begin(now_ns);
  if (state_ != State::probing) return false;
  if (probes_ == kProbes) {
    turn_off_for(Said::heard, Why::not_heard, now_ns);
    return false;
  }
  next_ns_ = now_ns + std::min(times_.longest_probe_ns, times_.probe_ns << probes_);
  ++probes_;
  return true;
}

}  // namespace talweg::protocol
