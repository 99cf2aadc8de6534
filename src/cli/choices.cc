#include "cli/choices.h"

#include <fmt/format.h>

#include "base/units.h"

namespace talweg::cli {
namespace {

constexpr std::size_t kSmallest = 4 << 10;
constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kStep = 4;

std::string cost_text(double seconds) {
  return fmt::format("{:.1f}", seconds * 1e6);
}

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
  std::string text = fmt::format("{:>12}  {:<20}{:>14}  {:<20}{:>14}{:>9}\n", name(op), "taken",
                                 "predicted us", "next best", "predicted us", "slower");
  for (const Choice& choice : choices) {
    text += fmt::format("{:>12}", to_string(Bytes{static_cast<std::int64_t>(choice.bytes)}));
    for (std::size_t i = 0; i < choice.candidates.size() && i < 2; ++i)
      text += fmt::format("  {:<20}{:>14}", choice.candidates[i].planner,
                          cost_text(choice.candidates[i].seconds));
    if (choice.candidates.size() > 1 && choice.candidates[0].seconds > 0)
      text += fmt::format("{:>8.2f}x", choice.candidates[1].seconds / choice.candidates[0].seconds);
    text += "\n";
  }
  return text;
}

}  // namespace talweg::cli
