#include "study/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/fail.h"
#include "base/units.h"
#include "forest/planner.h"
#include "study/plan_report.h"
#include "study/why_not.h"
#include "text/table.h"

namespace talweg::study {
namespace {

constexpr std::size_t kSmallest = 4 << 10;
constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kStep = 4;

// What a group takes, if that is known, then the others, cheapest first.
std::vector<Candidate> candidates_of(const Study& study, const StudyRow& row) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < study.planners.size(); ++i)
    if (const Prediction& its = row.predictions[i]; its.seconds)
      candidates.push_back({study.planners[i], *its.seconds, its.through, its.breakdown});
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  const auto taken = std::ranges::find(candidates, row.choice.taken, &Candidate::planner);
  if (row.choice.missing.empty() && taken != candidates.end())
    std::rotate(candidates.begin(), taken, taken + 1);
  return candidates;
}

std::string choice_size(Collective op, const Choice& choice) {
  return op == Collective::barrier ? "" : to_string(Bytes{static_cast<std::int64_t>(choice.bytes)});
}

}  // namespace

forest::Request request_for(Collective op, int ranks, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(size_of(DataType::f32));
  return forest::even_request(op, ranks, 0, static_cast<std::int64_t>(bytes) / size, size);
}

Choices choices(Collective op, const cluster::Cluster& network, double seconds,
                const std::function<void(const StudyProgress&)>& look) {
  if (network.nodes.size() > kMostNodesToPlan)
    refuse("times are predicted for networks of up to {} nodes, hosts and switches too, and this one has {}",
           kMostNodesToPlan, network.nodes.size());
  StudyRequest request;
  request.op = op;
  request.patience = seconds;
  request.bound = false;
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= kStep)
    request.sizes.push_back(static_cast<std::int64_t>(bytes));
  if (op == Collective::barrier) request.sizes = {0};
  const Study study = study_plans(network, request, look);
  Choices result;
  for (const StudyRow& row : study.rows)
    result.sizes.push_back(
        {static_cast<std::size_t>(row.bytes), candidates_of(study, row), row.choice.missing.empty()});
  for (std::size_t i = 0; i < study.planners.size(); ++i) {
    const auto late = std::ranges::find_if(study.rows.rbegin(), study.rows.rend(),
                                           [&](const StudyRow& row) { return row.predictions[i].not_done; });
    if (late != study.rows.rend())
      result.left_out.push_back(fmt::format("{} from {} down: {}", study.planners[i], size_text(study, *late),
                                            late->predictions[i].reason));
  }
  result.why_not = why_not(study);
  return result;
}

std::string to_text(Collective op, const Choices& choices, bool wide) {
  using text::Quantity;
  text::Table table{{name(op)},
                    {"taken"},
                    {.title = "predicted", .of = Quantity::seconds},
                    {"limit"},
                    {"next best"},
                    {.title = "predicted", .of = Quantity::seconds},
                    {.title = "slower", .of = Quantity::number, .unit = {1, "x"}}};
  for (const Choice& choice : choices.sizes) {
    std::vector<text::Cell> cells{to_string(Bytes{static_cast<std::int64_t>(choice.bytes)})};
    std::span<const Candidate> left = choice.candidates;
    double taken = 0;
    if (choice.known && !left.empty()) {
      const Candidate& first = left.front();
      taken = first.seconds;
      cells.insert(cells.end(), {forest::plan_title(first.planner, first.through), first.seconds,
                                 forest::name(first.breakdown.limit)});
      left = left.subspan(1);
    } else {
      cells.insert(cells.end(), {"-", std::optional<double>(), "-"});
    }
    if (!left.empty()) {
      cells.emplace_back(forest::plan_title(left.front().planner, left.front().through));
      cells.emplace_back(left.front().seconds);
      if (taken > 0) cells.emplace_back(left.front().seconds / taken);
    }
    table.add(std::move(cells));
  }
  std::string text = table.text(wide);
  if (!choices.sizes.empty() && choices.sizes.back().known && !choices.sizes.back().candidates.empty()) {
    const Choice& largest = choices.sizes.back();
    const Candidate& taken = largest.candidates.front();
    text += text::in_lines(limit_text(choice_size(op, largest), taken.planner, taken.breakdown), wide);
  }
  for (const std::string& planner : choices.left_out)
    text += text::in_lines("left out, and might be taken: " + planner, wide);
  for (const std::string& why : choices.why_not) text += text::in_lines(why, wide);
  return text;
}

nlohmann::json to_json(Collective op, const std::string& network, int ranks, const Choices& choices) {
  nlohmann::json document = {{"collective", name(op)}, {"network", network}, {"ranks", ranks}};
  document["left_out"] = choices.left_out;
  document["why_not"] = choices.why_not;
  document["sizes"] = nlohmann::json::array();
  for (const Choice& choice : choices.sizes) {
    nlohmann::json line = {
        {"size_bytes", choice.bytes}, {"taken", nullptr}, {"candidates", nlohmann::json::array()}};
    if (choice.known && !choice.candidates.empty()) line["taken"] = choice.candidates.front().planner;
    for (const auto& candidate : choice.candidates) {
      line["candidates"].push_back({{"algorithm", candidate.planner},
                                    {"predicted_us", candidate.seconds * 1e6},
                                    {"through", candidate.through}});
      line["candidates"].back().update(breakdown_json(candidate.breakdown));
    }
    document["sizes"].push_back(std::move(line));
  }
  return document;
}

}  // namespace talweg::study
