// Survey: what network joins some hosts, found out from how fast sets of flows run between them.
//
//   Survey survey(8);
//   while (const Trial* trial = survey.next()) survey.add(run(*trial));
//   Cluster cluster = to_cluster(survey.findings(), layout);         // findings.h
//
// It says what to measure next, given what was measured; it has no clock and no sockets. A trial is a set of
// flows that run at once. In this order:
//   1. rounds in which every host sends to one and receives from one, then all pairs at once. Where each flow
//      is as fast with all the others as in its round, nothing is shared: every pair has a limit of its own
//      and all is known;
//   2. else each host sends to all others, and receives from all: what its own port carries each way. Then
//      both at once, a little slower than that: whether the two directions share it. At full rate the
//      acknowledgements of one way would wait behind the data of the other;
//   3. more rounds, in other company. A flow that leaves room in its sender's and its receiver's port is held
//      up by something else;
//   4. pairs with such flows, each alone. What is slow alone has a limit of its own;
//   5. what is slow only in company shares something with others: the set of hosts is searched for whose
//      flows to the rest add up to the same rate whenever one of them is held up (an uplink), and measured.
// What is found is measured until the estimate is as sure as was asked for, or `most_repeats` times.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "steer/bottleneck.h"
#include "steer/findings.h"

namespace talweg::steer {

struct SurveyOptions {
  double confidence = 0.05;  // half-width of an estimate, as a part of it
  int most_repeats = 5;
};

struct Trial {
  std::vector<Flow> flows;
  std::vector<double> most;  // bit/s that each may send; empty: whatever they can
  bool each = false;         // every flow's own rate is asked for, not only what they add up to at a port
};

// How much time there is. No repeats that only make estimates surer; nor what is as good as known.
enum class Haste { none, hurry, finish };

class Survey {
 public:
  // Beyond this not every pair is measured: rounds are a sample, and pairs of their own are bounded.
  static constexpr int kAllPairs = 16;
  static constexpr int kMostPairs = kAllPairs * (kAllPairs - 1) / 2;
  static constexpr int kSampledRounds = 15;  // of each kind
  static constexpr int kMostHosts = 256;

  // Throws Error{invalid_argument} for fewer than 2 hosts or more than kMostHosts.
  explicit Survey(int hosts, SurveyOptions options = {});

  // What to measure next; null when nothing is left to be known. Good until `add`.
  const Trial* next();
  // The rates, in bit/s, of the flows of that trial.
  void add(std::span<const double> rates, Haste haste = Haste::none);
  Findings findings() const;

  // How many trials there will be where ports explain everything, and at most.
  static int expected_trials(int hosts);
  static int most_trials(int hosts, const SurveyOptions& options = {});
  static std::size_t most_flows(int hosts);  // of one trial

 private:
  enum class Stage {
    start,
    apart,
    ports,
    ports_again,
    both,
    both_again,
    rounds,
    contradictions,
    pairs,
    pairs_again,
    doubts,
    sharing,
    ways,
    done
  };
  struct Series {
    Trial trial;
    std::vector<std::vector<double>> repeats;  // rates by flow
  };
  using Index = std::size_t;
  struct PairValue {
    Flow flow;
    Index series = 0;
    Estimate rate;
  };
  // An uplink that is supposed, or known: hosts on its inner side, and its two ways.
  struct Uplink {
    std::vector<bool> inside;
    std::optional<Index> leaving, entering;               // their series
    std::optional<Estimate> leaving_rate, entering_rate;  // none: not a limit
  };

  Index make(std::vector<Flow> flows, int times);
  void advance();
  void make_first_look();
  void make_shifts();
  void make_all_pairs();
  enum class Apart { unsure, no, yes };
  Apart judge_apart();
  Index shift_of(const Flow& flow) const;
  void repeat_once(std::vector<Index> again, int most);
  void make_apart();
  void make_ports();
  bool repeat_ports();
  void make_both();
  double offered(int host) const;
  bool repeat_both();
  void judge_ports();
  void make_rounds();
  void doubt_ports();
  void make_pairs();
  bool repeat_pairs();
  void judge_pairs();
  void doubt_rounds();
  void share();
  bool measure_ways();

  bool unsure(const Estimate& rate, Index series) const;
  bool few_repeats(Index series) const;
  Estimate total(Index series) const;
  Estimate pair_rate(const PairValue& pair) const;
  std::vector<double> in_rounds(const Flow& flow) const;
  bool slow_in_rounds(const Flow& flow) const;
  double ports(const Flow& flow) const;
  void add_free_pairs(Findings& found) const;
  const PairValue* measured_alone(const Flow& flow) const;
  double base(const Flow& flow) const;
  Observation observed(Index series) const;
  std::vector<Observation> observed_rounds() const;
  std::vector<Flow> across(const std::vector<bool>& from) const;
  std::optional<Estimate> judge_way(Index series) const;
  std::size_t host(int h) const { return static_cast<std::size_t>(h); }

  const int hosts_;
  const SurveyOptions options_;
  Stage stage_ = Stage::start;
  Haste haste_ = Haste::none;
  std::vector<Series> series_;
  std::deque<Index> queue_;
  Index all_pairs_ = 0;
  std::vector<Index> out_, in_, both_;  // by host
  std::vector<Index> rounds_;           // the shifts first
  std::vector<Estimate> out_rate_, in_rate_;
  std::vector<std::optional<Estimate>> both_rate_;
  std::vector<PairValue> pairs_;
  std::vector<Bottleneck> known_;
  std::vector<Uplink> uplinks_;
  std::vector<std::vector<bool>> supposed_;  // senders that were supposed to share a way out, true or not
  int unmeasured_pairs_ = 0;
};

}  // namespace talweg::steer
