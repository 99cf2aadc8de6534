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
//   2. else each host sends to all others, and receives from all: what its own port carries each way. Where
//      each flow is as fast there as in its round, ports are no limit, and acknowledgements that waited
//      behind data spoilt the trial of all pairs: it is run again, one way of each pair and then the other;
//   3. both ways of a port at once, the slower one at a part of its rate so that no acknowledgements wait for
//      it: whether the two share the port. Not where some trial has carried as much both ways already;
//   4. rounds in which every host sends or receives, never both. A flow that leaves room in its sender's and
//      its receiver's port, and whose acknowledgements find room too, is held up by something else;
//   5. the set of hosts is searched for whose flows to the rest add up to the same rate whenever one of them
//      is held up (an uplink), and what it is supposed to share is tested, one way (evidence.h);
//   6. pairs with flows that are slow for no reason yet, each alone: what is slow alone has a limit of its
//      own. With these known, 5 again.
// What is found is measured until the estimate is as sure as was asked for, or `most_repeats` times.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "steer/bottleneck.h"
#include "steer/evidence.h"
#include "steer/findings.h"

namespace talweg::steer {

struct SurveyOptions {
  double confidence = 0.05;  // half-width of an estimate, as a part of it
  int most_repeats = 5;
};

struct Trial {
  std::vector<Flow> flows;
  std::vector<double> most;  // bit/s that each may send, 0: whatever it can; empty: all may
  bool each = false;         // every flow's own rate is asked for, not only what they add up to at a port
};

// How much time there is. No repeats that only make estimates surer; nor what is as good as known.
enum class Haste { none, hurry, finish };

class Survey {
 public:
  // Beyond this not every pair is measured: rounds are a sample, and flows that run alone are bounded.
  static constexpr int kAllPairs = 16;
  static constexpr int kMostAlone = kAllPairs * (kAllPairs - 1);
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
    one_way,
    both,
    both_again,
    rounds,
    contradictions,
    doubts,
    sharing,
    pairs,
    pairs_again,
    sharing_again,
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
  // What hosts' flows to all others share, or are supposed to.
  struct Way {
    std::vector<bool> senders;
    std::vector<Index> companies;  // sets of such flows
    std::vector<Index> parts;      // of the first of them
    std::optional<Estimate> rate;  // none: apart
    double doubt = 1;
  };
  // Of two ways, out of some hosts and into them. The fewer hosts are inside.
  struct Uplink {
    std::vector<bool> inside;
    std::optional<Estimate> leaving, entering;
  };

  Index make(std::vector<Flow> flows, int times);
  void advance();
  void make_first_look();
  void make_shifts();
  void make_all_pairs();
  enum class Apart { unsure, no, yes };
  Apart judge_apart();
  bool ports_are_no_limit() const;
  void make_one_way();
  bool one_way_is_apart();
  bool as_fast(const Flow& flow, Index company) const;
  Index shift_of(const Flow& flow) const;
  void repeat_once(std::vector<Index> again, int most);
  void make_apart(const std::vector<Index>& companies);
  void make_ports();
  bool repeat_ports();
  void make_both();
  Index make_both_at(int host, double part);
  std::vector<Index> judge_ports();
  Supposition both_supposition(int host) const;
  void make_rounds();
  void doubt_ports();
  void doubt_rounds(double most);
  void make_pairs();
  bool repeat_pairs();
  void judge_pairs();
  bool share();
  void forget_refuted();
  void suppose(std::vector<bool> senders);
  bool test_supposed();
  Supposition way_supposition(const Way& way) const;
  bool goes_one_way(Index series) const;
  std::optional<std::vector<bool>> to_suppose() const;

  bool unsure(const Estimate& rate, Index series) const;
  bool few_repeats(Index series) const;
  Estimate total(Index series) const;
  std::vector<double> totals(Index series) const;
  double apart(Index series) const;
  double carried(const Bottleneck& bottleneck) const;
  Noise noise() const;
  Standard standard(double least) const;
  Estimate pair_rate(const PairValue& pair) const;
  std::vector<double> values_in(const std::vector<Index>& companies, const Flow& flow) const;
  std::vector<double> in_rounds(const Flow& flow) const;
  bool slow_in_rounds(const Flow& flow) const;
  double ports(const Flow& flow) const;
  void add_free_pairs(Findings& found) const;
  const PairValue* measured_alone(const Flow& flow) const;
  double base(const Flow& flow) const;
  Observation observed(Index series) const;
  std::vector<Observation> observed_rounds() const;
  std::vector<Flow> across(const std::vector<bool>& from, const std::vector<std::vector<Flow>>& before) const;
  std::vector<Uplink> uplinks() const;
  std::size_t host(int h) const { return static_cast<std::size_t>(h); }

  const int hosts_;
  const SurveyOptions options_;
  Stage stage_ = Stage::start;
  Haste haste_ = Haste::none;
  std::vector<Series> series_;
  std::deque<Index> queue_;
  Index all_pairs_ = 0;
  std::vector<Index> one_way_;            // all pairs, one way of each and then the other
  std::vector<Index> out_, in_;           // by host
  std::vector<std::vector<Index>> both_;  // by host: in two companies
  std::vector<Index> rounds_;             // the shifts first
  std::vector<Estimate> out_rate_, in_rate_;
  std::vector<std::optional<Estimate>> both_rate_;
  std::vector<PairValue> pairs_;
  std::vector<Bottleneck> known_;
  std::vector<Way> ways_;
  std::optional<Way> supposed_;
  std::vector<std::vector<bool>> tried_;  // senders that were supposed to share a way out, true or not
  int refuted_ = 0;                       // of these, lately
  double both_doubt_ = 0;                 // that one of both_rate_ is not there
  int unmeasured_pairs_ = 0;
};

}  // namespace talweg::steer
