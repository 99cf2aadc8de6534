// Two results side by side: talweg compare. What stands for the same thing is matched, by what it is, size,
// rank count, planner or flow, and what differs by more than a threshold is marked.
//
//   const Comparison found = compare(read_results("a.json"), read_results("b.json"), 0.05);
//   std::string text = to_text(found, false);
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/comparable.h"

namespace talweg::study {

struct Compared {
  Measure a, b;
  std::optional<double> ratio{};  // b / a; nothing where one has no value, or is a word
  bool differs = false;
};

struct Comparison {
  ResultFile a, b;  // without their measures
  double threshold = 0;
  std::vector<Compared> pairs;  // of what both have, in the order of `a`
  std::vector<Measure> only_a, only_b;

  std::size_t differing() const;
  // Whether nothing differs. Results of two kinds need not have the same measures.
  bool equal() const;
};

// `threshold`: by which part the larger value may be above the smaller one. Planners are matched with their
// likes where one of the two has several for the same thing; else those that served are laid beside each
// other, and differ where they are not the same. Throws Error{invalid_argument} where the two have no measure
// in common.
Comparison compare(ResultFile a, ResultFile b, double threshold);

// A table for each kind of measure, of all its lines or, if there are more than 100, of those that differ
// most; `wide`: of all, and whole names.
std::string to_text(const Comparison& comparison, bool wide);
nlohmann::json to_json(const Comparison& comparison);

}  // namespace talweg::study
