#include "cli/choices.h"

#include <fmt/format.h>

#include "base/units.h"

namespace talweg::cli {
namespace {

constexpr std::size_t kSmallest = 4 << 10;
constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kStep = 4;

std::string time_text(double seconds) {
  return fmt::format("{:.1f}", seconds * 1e6);
}

}  // namespace

forest::Request request_for(Collective op, int ranks, std::size_t bytes) {
  forest::Request request;
  request.op = op;
  request.ranks = ranks;
  request.element_size = static_cast<std::int64_t>(size_of(DataType::f32));
  const auto n = static_cast<std::size_t>(ranks);
  const auto elements = static_cast<std::int64_t>(bytes) / request.element_size;
  switch (op) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
      request.counts.assign(n, elements / ranks);
      break;
    case Collective::all_to_all:
      request.counts.assign(n * n, elements / ranks);
      break;
    case Collective::barrier:
      request.counts = {0};
      break;
    case Collective::send_recv:
      request.peer = ranks > 1 ? 1 : 0;
      request.counts = {elements};
      break;
    default:
      request.counts = {elements};
  }
  return request;
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
                          time_text(choice.candidates[i].seconds));
    if (choice.candidates.size() > 1 && choice.candidates[0].seconds > 0)
      text += fmt::format("{:>8.2f}x", choice.candidates[1].seconds / choice.candidates[0].seconds);
    text += "\n";
  }
  return text;
}

}  // namespace talweg::cli
