#include "study/choices.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "text/table.h"

namespace talweg::study {
namespace {

constexpr std::size_t kSmallest = 4 << 10;
constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kStep = 4;

}  // namespace

forest::Request request_for(Collective op, int ranks, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(size_of(DataType::f32));
  return forest::even_request(op, ranks, 0, static_cast<std::int64_t>(bytes) / size, size);
}

std::vector<Choice> choices(Collective op, const cluster::Cluster& network) {
  std::vector<Choice> list;
  const std::size_t last = op == Collective::barrier ? kSmallest : kLargest;
  for (std::size_t bytes = kSmallest; bytes <= last; bytes *= kStep)
    list.push_back({op == Collective::barrier ? 0 : bytes,
                    forest::rank_planners(request_for(op, network.workers(), bytes), network)});
  return list;
}

std::string to_text(Collective op, const std::vector<Choice>& choices) {
  const text::Columns columns{{name(op), 12},        {"taken", -20, 2},    {"predicted us", 14},
                              {"next best", -20, 2}, {"predicted us", 14}, {"slower", 9}};
  std::string text = columns.head();
  for (const Choice& choice : choices) {
    std::vector<std::string> cells{to_string(Bytes{static_cast<std::int64_t>(choice.bytes)})};
    for (std::size_t i = 0; i < choice.candidates.size() && i < 2; ++i)
      cells.insert(cells.end(),
                   {forest::plan_title(choice.candidates[i].planner, choice.candidates[i].through),
                    fmt::format("{:.1f}", choice.candidates[i].seconds * 1e6)});
    if (choice.candidates.size() > 1 && choice.candidates[0].seconds > 0)
      cells.push_back(fmt::format("{:.2f}x", choice.candidates[1].seconds / choice.candidates[0].seconds));
    text += columns.line(cells);
  }
  return text;
}

nlohmann::json to_json(Collective op, const std::string& network, int ranks,
                       const std::vector<Choice>& choices) {
  nlohmann::json document = {{"collective", name(op)}, {"network", network}, {"ranks", ranks}};
  document["sizes"] = nlohmann::json::array();
  for (const Choice& choice : choices) {
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
