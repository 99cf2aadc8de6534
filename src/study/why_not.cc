#include "study/why_not.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/at.h"

namespace talweg::study {
namespace {

// Of the time that is taken: what is as good as that takes another number of elements here and there.
constexpr double kQuicker = 0.999;

// Null: it is taken, or its offer has lost.
const forest::NotTaken* passed_over(const Study& study, const StudyRow& row, std::size_t planner) {
  const auto found =
      std::ranges::find(row.choice.why_not, study.planners[planner], &forest::NotTaken::planner);
  return found == row.choice.why_not.end() ? nullptr : &*found;
}

std::string remark(const Study& study, const StudyRow& row, std::size_t planner) {
  if (const std::string why = why_not_taken(study, row, planner); !why.empty())
    return "predicted to be quicker, and not taken: " + why;
  const forest::NotTaken* const its = passed_over(study, row, planner);
  if (its == nullptr || its->reason != forest::NotTaken::Reason::no_plan) return {};
  return "not planned: " + its->why;
}

// From one row to another.
std::string sizes_text(const Study& study, std::size_t first, std::size_t last) {
  if (first == 0 && last + 1 == study.rows.size()) return {};
  const std::string text = ", " + size_text(study, study.rows[first]);
  return first == last ? text : text + " to " + size_text(study, study.rows[last]);
}

}  // namespace

std::string why_not_taken(const Study& study, const StudyRow& row, std::size_t planner) {
  if (row.taken < 0) return {};
  const auto& seconds = row.predictions[planner].seconds;
  const auto& taken = row.predictions[at(row.taken)].seconds;
  const forest::NotTaken* const its = passed_over(study, row, planner);
  return its != nullptr && seconds && taken && *seconds < kQuicker * *taken ? its->why : std::string();
}

std::vector<std::string> why_not(const Study& study) {
  std::vector<std::string> sentences;
  for (std::size_t planner = 0; planner < study.planners.size(); ++planner) {
    for (std::size_t first = 0; first < study.rows.size();) {
      const std::string said = remark(study, study.rows[first], planner);
      std::size_t next = first + 1;
      while (next < study.rows.size() && remark(study, study.rows[next], planner) == said) ++next;
      if (!said.empty())
        sentences.push_back(
            fmt::format("{}{}: {}", study.planners[planner], sizes_text(study, first, next - 1), said));
      first = next;
    }
  }
  return sentences;
}

}  // namespace talweg::study
