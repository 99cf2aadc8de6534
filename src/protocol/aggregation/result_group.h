// ResultGroup: whether the results of a job go to all of its workers at once, by a multicast group, or to
// each by itself, as they do at first.
//
//   ResultGroup group(workers, now_ns);
//   group.says(worker, {wire::GroupWord::joined}, now_ns);   // what workers say, over their connections
//   if (now_ns >= group.next_time_ns() && group.probe(now_ns)) ...      // send probes of group.attempt()
//   if (group.by_group()) ...                                // all of them have heard one
//
// A network may carry multicast to some of its hosts and not to others, and nobody says so. So the group is
// used once every worker has said that a probe, as long as the largest result, has come to it, and no longer
// than until one says that too much does not come. Then, and where probes do not come, it rests, and is tried
// again: what was lost may have been a network's that was changed for a while. Each rest is twice as long as
// the one before it, up to the longest; after the group has served for longer than that, rests are short
// again. Who says late that the last probe has come is heard, too: then it does not rest. It is off for good
// where a worker's host does not join it.
//
// Pure: no socket, no clock, no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "wire/switch_message.h"

namespace talweg::protocol {

struct ResultGroupTimes {
  // Probes are lost, too, and a network takes a while to know who has joined: they are repeated after this
  // time, then after twice as long each time, up to the longest.
  std::int64_t probe_ns = 20'000'000, longest_probe_ns = 1'000'000'000;
  // A worker joins when it begins a sum, or is in one: as long as it would be probed for.
  std::int64_t join_ns = 10'000'000'000;
  std::int64_t rest_ns = 10'000'000'000, longest_rest_ns = 640'000'000'000;
};

class ResultGroup {
 public:
  enum class State : std::uint8_t {
    joining,   // some worker has not said that it has joined
    probing,   // some worker has not said that it has heard a probe
    by_group,  // all have
    off,       // it rests
  };
  // Why it is off.
  enum class Why : std::uint8_t {
    not_joined,  // a worker has not said that it has joined; once it says so, the rest is over
    cannot,      // a worker's host does not join it: for good
    not_heard,   // probes have not come to some
    lost,        // too few of the results have come to one
  };
  static constexpr int kProbes = 14;  // about ten seconds

  ResultGroup(std::size_t workers, std::int64_t now_ns, const ResultGroupTimes& times = {});

  void says(std::size_t worker, const wire::SwitchHears& word, std::int64_t now_ns);
  // Of a time that has come. True: probes are to be sent; else the state may be another one.
  bool probe(std::int64_t now_ns);
  // That never comes: nothing is to be done until a worker says something.
  std::int64_t next_time_ns() const { return next_ns_; }

  State state() const { return state_; }
  bool by_group() const { return state_ == State::by_group; }
  // From 1 on: of the probes that are sent, or were sent last. What is said of an earlier one is not heard.
  std::uint32_t attempt() const { return attempt_; }
  // While it is off, and of what was tried last: why; which workers, in ascending order; and what the one of
  // them has said that cannot join or has lost it.
  Why why() const { return why_; }
  const std::vector<std::uint16_t>& deaf() const { return deaf_; }
  const wire::SwitchHears& word() const { return word_; }
  bool was_used() const { return was_used_; }  // ever

 private:
  enum class Said : std::uint8_t { nothing, joined, heard };
  bool all(Said what) const;
  void begin(std::int64_t now_ns);
  void turn_off(Why why, std::int64_t now_ns);
  void turn_off_for(Said less, Why why, std::int64_t now_ns);

  ResultGroupTimes times_;
  std::vector<Said> said_;
  State state_ = State::joining;
  Why why_ = Why::not_joined;
  bool was_used_ = false;
  int probes_ = 0;
  std::uint32_t attempt_ = 0;
  std::int64_t next_ns_, rest_ns_, used_since_ns_ = 0;
  std::vector<std::uint16_t> deaf_;
  wire::SwitchHears word_;
};

}  // namespace talweg::protocol
