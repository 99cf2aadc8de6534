// What can be expected of a collective on a network: how fast it can be at all, and what every planner of the
// table is predicted to take at every size. `talweg plan` shows it as text, JSON and a page.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/bound.h"
#include "forest/choice.h"
#include "forest/cost.h"
#include "forest/forest.h"
#include "forest/planner.h"
#include "talweg/types.h"

namespace talweg::study {

// What is known of all pairs of nodes is kept, some 140 bytes each, and forests may have an edge for each.
inline constexpr std::size_t kMostNodesToPlan = 2500;

struct StudyRequest {
  Collective op = Collective::all_reduce;
  forest::NodeId root = 0;
  std::vector<std::int64_t> sizes;   // bytes, ascending, of the whole vector; all_to_all: of one rank's row
  double patience = 20;              // seconds for everything; what is not done by then is left out
  std::vector<std::string> only;     // these planners, which must serve the collective; empty: all
  bool bound = true;                 // whether the bound is asked for
  std::vector<std::string> notes{};  // what Study::notes begin with
  std::vector<int> servers{};        // of sim::kBounded: the ranks that sum; empty: all
};

struct Prediction {
  std::optional<double> seconds;
  std::string reason;                  // why there is none
  bool not_done = false;               // there might be one: it was not tried, or did not end
  std::vector<std::string> through{};  // the aggregators that its trees lead through
  int flows = 0;                       // see forest::Offer
  forest::Breakdown breakdown{};       // what `seconds` is made of, and what limits it
};

struct StudyRow {
  std::int64_t bytes = 0;               // as asked for; of what moves, request_bytes() says
  std::vector<Prediction> predictions;  // by Study::planners
  // What a group takes, or the quickest of those asked for, into Study::planners; -1: not known, as others
  // that might be were not done.
  int taken = -1;
  // Behind that: what is best of those that were done, who is missing, and, if all planners were asked for,
  // why others are not taken.
  forest::Choice choice{};
  // What sums by `talweg switch` on all aggregators are predicted to take; nothing where there are none, or
  // for another collective. No group takes it by itself.
  std::optional<Prediction> by_switch{};
};

struct Study {
  Collective op = Collective::all_reduce;
  forest::NodeId root = 0;
  int ranks = 0;
  std::optional<forest::Bound> bound;
  std::string no_bound;               // why there is none
  std::vector<std::string> planners;  // those that serve the collective, in the order of the table
  bool all_planners = true;           // false: only those asked for
  std::vector<std::string> others;    // those that do not
  std::vector<StudyRow> rows;
  std::vector<std::string> notes;  // what was left out, one sentence each
};

// How far a study is.
struct StudyProgress {
  std::size_t done = 0;                  // times that are predicted, or known not to be there
  std::size_t all = 0;                   // of each planner at each size
  std::vector<std::string> under_way{};  // planners, and "the bound"
};
// "23 of 110 times predicted; under way: packed, the bound and 3 more"
std::string to_text(const StudyProgress& progress);

// Works in processes of its own: there must be no other threads. `look` is told ten times a second or more
// how far that is. Throws Error{invalid_argument} where the network is too large for all that was asked.
Study study_plans(const cluster::Cluster& network, const StudyRequest& request,
                  const std::function<void(const StudyProgress&)>& look = {});

// The least bound that is known after `seconds`; nothing where there is none for the collective. As above,
// there must be no other threads, and `look` is called ten times a second or more.
std::optional<forest::Bound> bound_within(const cluster::Cluster& network, Collective op, forest::NodeId root,
                                          double seconds, const std::function<void()>& look = {});

// Makes the choice of every row, by the rule of groups (forest::choose); sets StudyRow::taken where nothing
// that might win is missing, and says in a note where something is.
void mark_taken(const forest::CostModel& model, Study& study);

// What StudyRow::taken is, in words.
const char* taken_text(const Study& study);
// "64 KiB"; "-" for a barrier, which has none.
std::string size_text(const Study& study, const StudyRow& row);

forest::Request request_of(Collective op, forest::NodeId root, int ranks, std::int64_t bytes);
// By name; of sim::kBounded, sums of which a part may be lost, the one with the same messages, where nothing
// is lost.
const forest::Planner& planner_of(std::string_view name);
// The forest for one size: by this planner, or by the one that a group takes.
forest::Forest plan_for(const cluster::Cluster& network, const forest::Request& request,
                        const std::string& planner);

// Bytes of the whole vector over seconds, in bit/s, and over the bound's rate; nothing where there is no time
// or bound.
std::int64_t request_bytes(const forest::Request& request);
std::optional<double> rate_of(const Study& study, const StudyRow& row, std::size_t planner);
std::optional<double> part_of_bound(const Study& study, const StudyRow& row, std::size_t planner);

}  // namespace talweg::study
