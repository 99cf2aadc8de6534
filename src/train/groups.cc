#include <algorithm>
#include <numeric>

#include "base/at.h"
#include "base/fail.h"
#include "train/step_dag.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

using LayerGroups = std::vector<std::vector<int>>;

LayerGroups in_layers(const Gradients& gradients, const Groups& groups) {
  LayerGroups result;
  std::size_t begin = 0;
  for (const std::size_t end : groups) {
    result.emplace_back(gradients.layers.begin() + static_cast<std::ptrdiff_t>(begin),
                        gradients.layers.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return result;
}

// Caps are of gradients as they lie in memory, whatever is sent of them.
Groups by_size(const Gradients& gradients, const Setting& setting, Bytes first_cap, Bytes cap) {
  std::vector<Arrival> whole = gradients.arrivals;
  for (Arrival& arrival : whole) arrival.bytes *= setting.compression;
  return merge_by_size(whole, first_cap, cap);
}

// Named groups without layers that have nothing to send, and what is in none of them. `split`: a layer's
// parameters may lie in several of them.
LayerGroups completed(const Job& job, const LayerGroups& named, bool split) {
  std::vector<bool> seen(job.layers.size());
  LayerGroups result;
  for (const auto& group : named) {
    std::vector<int> kept;
    for (const int layer : group) {
      if (layer < 0 || layer >= std::ssize(job.layers)) refuse("a group of gradients names layer {}", layer);
      if (seen[at(layer)] && !split)
        refuse("two groups of gradients name layer {}", job.layers[at(layer)].name);
      seen[at(layer)] = true;
      if (job.layers[at(layer)].gradient.value > 0) kept.push_back(layer);
    }
    std::ranges::sort(kept, std::ranges::greater{});
    if (!kept.empty()) result.push_back(std::move(kept));
  }
  for (int layer = 0; layer < std::ssize(job.layers); ++layer)
    if (!seen[at(layer)] && job.layers[at(layer)].gradient.value > 0) result.push_back({layer});
  return result;
}

LayerGroups recorded_groups(const Job& job) {
  LayerGroups named;
  for (const Exchange& exchange : job.exchanges)
    if (!exchange.layers.empty()) named.push_back(exchange.layers);
  if (named.empty()) refuse("job {}: no recorded exchange says which layers' gradients it carried", job.name);
  return completed(job, named, true);
}

void sort_by_readiness(LayerGroups& groups) {
  std::ranges::stable_sort(groups, std::ranges::greater{}, [](const auto& group) { return group.back(); });
}

}  // namespace

std::vector<double> peer_waits(const Job& job, const Setting& setting) {
  const int layers = static_cast<int>(job.layers.size());
  std::vector<double> waits(job.layers.size());
  if (!setting.peer_waits || !setting.slowness.empty()) return waits;
  for (const Exchange& exchange : job.exchanges) {
    int last_ready = layers;
    for (const int layer : exchange.layers)
      if (job.layers[at(layer)].gradient.value > 0) last_ready = std::min(last_ready, layer);
    if (last_ready < layers) waits[at(last_ready)] += in_seconds(exchange.wait);
  }
  return waits;
}

Gradients gradients_of(const Job& job, const Setting& setting) {
  Gradients gradients;
  const double slowest = setting.slowness.empty() ? 1 : std::ranges::max(setting.slowness);
  const std::vector<double> waits = peer_waits(job, setting);
  double now = 0;
  for (int l = static_cast<int>(job.layers.size()) - 1; l >= 0; --l) {
    const Layer& layer = job.layers[at(l)];
    now += in_seconds(layer.backward) * setting.batch / setting.compute * slowest;
    if (layer.gradient.value > 0) {
      gradients.arrivals.push_back(
          {now, static_cast<double>(layer.gradient.value) / setting.compression, waits[at(l)]});
      gradients.layers.push_back(l);
    }
    now += in_seconds(layer.backward_gap);
  }
  return gradients;
}

LayerGroups groups_of(const Job& job, const Merging& merging, const Setting& setting) {
  const Gradients gradients = gradients_of(job, setting);
  const std::size_t n = gradients.arrivals.size();
  const TransferTimes& times = setting.network.all_reduce;
  switch (merging.rule) {
    case Merging::Rule::none:
      return in_layers(gradients, merge_none(n));
    case Merging::Rule::all:
      return in_layers(gradients, merge_all(n));
    case Merging::Rule::by_size:
      return in_layers(gradients, by_size(gradients, setting, merging.first_cap, merging.cap));
    case Merging::Rule::mg_wfbp:
      return in_layers(gradients, merge_mg_wfbp(gradients.arrivals, times));
    case Merging::Rule::exact: {
      const Merging ddp;
      std::vector<Groups> others;
      if (setting.in_flight > 1) others.push_back(by_size(gradients, setting, ddp.first_cap, ddp.cap));
      for (std::int64_t mib = 1; mib <= 512 && setting.in_flight > 1; mib *= 2)
        others.push_back(by_size(gradients, setting, {mib << 20}, {mib << 20}));
      return in_layers(gradients, merge_in_flight(gradients.arrivals, times, setting.in_flight, others));
    }
    case Merging::Rule::recorded:
      return recorded_groups(job);
    case Merging::Rule::given: {
      LayerGroups groups = completed(job, merging.groups, false);
      sort_by_readiness(groups);
      return groups;
    }
  }
  return {};
}

LayerGroups forward_groups(const Job& job, const Merging& merging, const Setting& setting) {
  LayerGroups groups;
  if (merging.rule == Merging::Rule::by_size) {
    Gradients gradients = gradients_of(job, setting);
    std::ranges::reverse(gradients.layers);
    std::ranges::reverse(gradients.arrivals);
    for (Arrival& arrival : gradients.arrivals) arrival.bytes *= setting.compression;
    groups = in_layers(gradients, merge_by_size(gradients.arrivals, merging.first_cap, merging.cap));
  } else {
    groups = groups_of(job, merging, setting);
    for (auto& group : groups) std::ranges::reverse(group);
    std::ranges::stable_sort(groups, {}, [](const auto& group) { return group.front(); });
  }
  for (std::size_t g = 0; g + 1 < groups.size(); ++g)
    if (groups[g].back() >= groups[g + 1].front())
      refuse("groups that are gathered again must be of layers that follow each other");
  return groups;
}

}  // namespace talweg::train
