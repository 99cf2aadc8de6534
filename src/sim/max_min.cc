#include "sim/max_min.h"

#include <algorithm>
#include <functional>

namespace talweg::sim {

MaxMin::MaxMin(const std::vector<double>& capacities) : resources_(capacities.size()) {
  for (std::size_t r = 0; r < capacities.size(); ++r) resources_[r].capacity = capacities[r];
}

void MaxMin::find_users(std::span<const std::vector<Use>* const> flows) {
  used_.clear();
  std::size_t uses = 0;
  for (const std::vector<Use>* flow : flows) {
    uses += flow->size();
    for (const Use& use : *flow) {
      Resource& r = resources_[use.resource];
      if (r.open++ == 0) {
        used_.push_back(use.resource);
        r.taken = r.load = 0;
      }
      r.load += static_cast<double>(use.weight);
    }
  }
  users_.resize(uses);
  std::uint32_t next = 0;
  for (const std::uint32_t u : used_) {
    resources_[u].first = resources_[u].end = next;
    next += resources_[u].open;
  }
  for (std::size_t f = 0; f < flows.size(); ++f)
    for (const Use& use : *flows[f]) users_[resources_[use.resource].end++] = static_cast<std::uint32_t>(f);
}

void MaxMin::fill(std::span<const std::vector<Use>* const> flows, std::vector<double>& rates) {
  constexpr double kOpen = -1;
  find_users(flows);
  rates.assign(flows.size(), kOpen);
  heap_.clear();
  for (const std::uint32_t u : used_) heap_.emplace_back(resources_[u].capacity / resources_[u].load, u);
  std::ranges::make_heap(heap_, std::greater<>());
  double level = 0;
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater<>());
    const auto [known, u] = heap_.back();
    Resource& r = resources_[u];
    if (r.open == 0) {
      heap_.pop_back();
      continue;
    }
    const double full = std::max(level, (r.capacity - r.taken) / r.load);
    if (full > known) {
      heap_.back().first = full;
      std::ranges::push_heap(heap_, std::greater<>());
      continue;
    }
    heap_.pop_back();
    level = full;
    for (std::uint32_t i = r.first; i < r.end; ++i) {
      const std::uint32_t f = users_[i];
      if (rates[f] != kOpen) continue;
      rates[f] = level;
      for (const Use& use : *flows[f]) {
        Resource& other = resources_[use.resource];
        other.taken += static_cast<double>(use.weight) * level;
        other.load -= static_cast<double>(use.weight);
        --other.open;
      }
    }
  }
  for (double& rate : rates) rate = std::max(rate, 0.0);
}

}  // namespace talweg::sim
