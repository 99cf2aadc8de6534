// Why planners are not taken, in plain words: for tables, pages and JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/plan_study.h"

namespace talweg::study {

// Why this one of Study::planners is not taken although it is predicted to be quicker than what is, by a
// thousandth or more; empty where it is not.
std::string why_not_taken(const Study& study, const StudyRow& row, std::size_t planner);

// That, and who is not planned, as it would be too much work: "packed, 16 MiB to 64 MiB: predicted to be
// quicker, and not taken: others come within ..."; sizes are left out where it holds for all.
std::vector<std::string> why_not(const Study& study);

}  // namespace talweg::study
