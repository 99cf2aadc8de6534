// Which algorithm a group would take for which size, and what it was preferred to: `talweg info all_reduce`.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/forest.h"
#include "study/plan_study.h"
#include "talweg/types.h"

namespace talweg::study {

struct Candidate {
  std::string planner;
  double seconds = 0;                  // predicted
  std::vector<std::string> through{};  // aggregators
  forest::Breakdown breakdown{};       // what `seconds` is made of, and what limits it
};

struct Choice {
  std::size_t bytes = 0;              // of the whole vector
  std::vector<Candidate> candidates;  // the one that is taken, then the others, cheapest first
  bool known = true;                  // which one is taken; if not, all are others
};

struct Choices {
  std::vector<Choice> sizes;
  std::vector<std::string> left_out;   // planners that might win, from which size on, and why
  std::vector<std::string> why_not{};  // others that are quicker, or not planned, and why (why_not.h)
};

// The request that a group of `ranks` makes for a vector of `bytes` (of f32; all_to_all: bytes of one rank's
// row).
forest::Request request_for(Collective op, int ranks, std::size_t bytes);

// One for each size from 4 KiB to 64 MiB, in steps of 4; a barrier has one. What is not known after `seconds`
// is left out, small sizes first. `look` is told how far that is, as by study_plans(). Throws
// Error{invalid_argument} for a network that is too large.
Choices choices(Collective op, const cluster::Cluster& network, double seconds,
                const std::function<void(const StudyProgress&)>& look = {});

// A table, one line a size: what is taken, its predicted time and what limits it, and the next best with its
// time, or the best of those with a time, where what is taken is not known; then what limits the plan of the
// largest size, and what is left out. `wide`: whole names, however wide.
std::string to_text(Collective op, const Choices& choices, bool wide);

// `network`: where it comes from.
nlohmann::json to_json(Collective op, const std::string& network, int ranks, const Choices& choices);

}  // namespace talweg::study
