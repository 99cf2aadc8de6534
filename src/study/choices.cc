#include "study/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/units.h"
#include "forest/cost.h"
#include "forest/packed.h"
#include "study/plan_study.h"
#include "study/side_by_side.h"
#include "text/table.h"

namespace talweg::study {
namespace {

constexpr std::size_t kSmallest = 4 << 10;
constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kStep = 4;

// What a group takes, then the others, cheapest first.
void put_taken_first(std::vector<forest::Candidate>& candidates, const forest::Request& request,
                     const forest::CostModel& model) {
  std::ranges::stable_sort(candidates, {}, &forest::Candidate::seconds);
  const auto find = [&](const std::string& planner) {
    return std::ranges::find(candidates, planner, &forest::Candidate::planner);
  };
  const std::string taken = forest::best_planner(request, model, [&](const std::string& planner) {
    const auto found = find(planner);
    return found != candidates.end() ? forest::Offer{found->seconds, found->flows}
                                     : forest::Offer{std::numeric_limits<double>::infinity()};
  });
  if (const auto found = find(taken); found != candidates.end())
    std::rotate(candidates.begin(), found, found + 1);
}

}  // namespace

forest::Request request_for(Collective op, int ranks, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(size_of(DataType::f32));
  return forest::even_request(op, ranks, 0, static_cast<std::int64_t>(bytes) / size, size);
}

Choices choices(Collective op, const cluster::Cluster& network, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  if (network.nodes.size() > kMostNodesToPlan)
    refuse("times are predicted for networks of up to {} nodes, and this one has {}", kMostNodesToPlan,
           network.nodes.size());
  Choices result;
  const std::size_t last = op == Collective::barrier ? kSmallest : kLargest;
  for (std::size_t bytes = kSmallest; bytes <= last; bytes *= kStep)
    result.sizes.push_back({op == Collective::barrier ? 0 : bytes, {}});
  const forest::CostModel model(network);  // here, so that all processes share its memory
  const auto request_at = [&](std::size_t size) {
    return request_for(op, network.workers(), result.sizes[size].bytes);
  };
  std::vector<const forest::Planner*> asked;
  std::vector<Work> pieces;
  for (const forest::Planner& planner : forest::planners()) {
    if (!planner.serves(request_at(0)) || !planner.quick(request_at(0))) continue;
    asked.push_back(&planner);
    pieces.emplace_back([&](const HandOver& hand_over) {
      forest::PackingMemo memo;
      for (std::size_t size = result.sizes.size(); size-- > 0;) {
        const forest::Request request = request_at(size);
        if (!planner.suits(request)) {
          hand_over("");
          continue;
        }
        const forest::Forest forest = forest::plan_by(planner, request, model, memo);
        const forest::Offer offer = forest::offer(forest, model);
        hand_over(nlohmann::json{offer.seconds, aggregator_names(forest, network), offer.flows}.dump());
      }
    });
  }
  const std::vector<WorkResult> done = side_by_side(pieces, seconds, begin);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    std::size_t size = result.sizes.size();
    for (const std::string& line : done[i].lines)
      if (--size; !line.empty()) {
        const auto found = nlohmann::json::parse(line);
        result.sizes[size].candidates.push_back({asked[i]->name, found[0], found[1], found[2]});
      }
    if (size > 0)
      result.left_out.push_back(fmt::format(
          "{} from {} down: {}", asked[i]->name,
          to_string(Bytes{static_cast<std::int64_t>(result.sizes[size - 1].bytes)}), done[i].failure));
  }
  for (std::size_t size = 0; size < result.sizes.size(); ++size)
    put_taken_first(result.sizes[size].candidates, request_at(size), model);
  return result;
}

std::string to_text(Collective op, const Choices& choices, bool wide) {
  using text::Quantity;
  text::Table table{{name(op)},
                    {"taken"},
                    {.title = "predicted", .of = Quantity::seconds},
                    {"next best"},
                    {.title = "predicted", .of = Quantity::seconds},
                    {.title = "slower", .of = Quantity::number, .unit = {1, "x"}}};
  for (const Choice& choice : choices.sizes) {
    std::vector<text::Cell> cells{to_string(Bytes{static_cast<std::int64_t>(choice.bytes)})};
    for (std::size_t i = 0; i < choice.candidates.size() && i < 2; ++i) {
      const forest::Candidate& candidate = choice.candidates[i];
      cells.emplace_back(forest::plan_title(candidate.planner, candidate.through));
      cells.emplace_back(candidate.seconds);
    }
    if (choice.candidates.size() > 1 && choice.candidates[0].seconds > 0)
      cells.emplace_back(choice.candidates[1].seconds / choice.candidates[0].seconds);
    table.add(std::move(cells));
  }
  std::string text = table.text(wide);
  for (const std::string& planner : choices.left_out)
    text += fmt::format("left out, and might be taken: {}\n", planner);
  return text;
}

nlohmann::json to_json(Collective op, const std::string& network, int ranks, const Choices& choices) {
  nlohmann::json document = {{"collective", name(op)}, {"network", network}, {"ranks", ranks}};
  document["left_out"] = choices.left_out;
  document["sizes"] = nlohmann::json::array();
  for (const Choice& choice : choices.sizes) {
    nlohmann::json line = {{"size_bytes", choice.bytes}, {"candidates", nlohmann::json::array()}};
    for (const auto& candidate : choice.candidates)
      line["candidates"].push_back({{"algorithm", candidate.planner},
                                    {"predicted_us", candidate.seconds * 1e6},
                                    {"through", candidate.through}});
    document["sizes"].push_back(std::move(line));
  }
  return document;
}

}  // namespace talweg::study
