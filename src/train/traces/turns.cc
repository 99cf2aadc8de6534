#include "train/traces/turns.h"

#include <algorithm>
#include <numeric>

#include "base/at.h"

namespace talweg::train {

Turns turns_of(std::span<const UnderWay> transfers, std::int64_t from) {
  Turns turns{.begins = std::vector<std::int64_t>(transfers.size())};
  std::vector<std::size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return transfers[i].end; });
  std::vector<std::int64_t> begins;
  for (const UnderWay& transfer : transfers) begins.push_back(transfer.begin);
  std::ranges::sort(begins);
  int begun = 0, ended = 0;
  for (const std::int64_t begin : begins) {
    while (ended < std::ssize(order) && transfers[order[at(ended)]].end <= begin) ++ended;
    turns.in_flight = std::max(turns.in_flight, ++begun - ended);
  }
  std::int64_t free = from;
  for (const std::size_t i : order) {
    const auto& [begin, end] = transfers[i];
    turns.begins[i] = std::min(std::max(begin, free), end);
    free = std::max(free, end);
  }
  return turns;
}

}  // namespace talweg::train
