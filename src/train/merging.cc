#include "train/merging.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace talweg::train {

double finish(std::span<const Arrival> arrivals, const Groups& groups, const TransferTimes& times,
              int in_flight) {
  const auto most = static_cast<std::size_t>(in_flight);
  std::vector<double> ends;  // of each group
  std::size_t begin = 0;
  for (const std::size_t group_end : groups) {
    double bytes = 0, wait = 0;
    for (std::size_t i = begin; i < group_end; ++i) {
      bytes += arrivals[i].bytes;
      wait = std::max(wait, arrivals[i].wait);
    }
    const double seconds = times.seconds(bytes), startup = std::min(times.startup(), seconds);
    double start = arrivals[group_end - 1].ready;
    if (ends.size() >= most) start = std::max(start, ends[ends.size() - most]);
    const double before = ends.empty() ? 0 : ends.back();
    ends.push_back(std::max(before, start + wait + startup) + (seconds - startup));
    begin = group_end;
  }
  return ends.empty() ? 0 : ends.back();
}

Groups merge_none(std::size_t arrivals) {
  Groups groups(arrivals);
  std::iota(groups.begin(), groups.end(), std::size_t{1});
  return groups;
}

Groups merge_all(std::size_t arrivals) {
  return arrivals == 0 ? Groups{} : Groups{arrivals};
}

Groups merge_by_size(std::span<const Arrival> arrivals, Bytes first_cap, Bytes cap) {
  Groups groups;
  double bytes = 0;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    bytes += arrivals[i].bytes;
    const Bytes most = groups.empty() ? first_cap : cap;
    if (bytes < static_cast<double>(most.value) && i + 1 < arrivals.size()) continue;
    groups.push_back(i + 1);
    bytes = 0;
  }
  return groups;
}

Groups merge_mg_wfbp(std::span<const Arrival> arrivals, const TransferTimes& times) {
  Groups groups;
  const double startup = times.startup();
  double free = 0;      // when the channel has sent all groups before
  double gathered = 0;  // of the group that is open
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    gathered += arrivals[i].bytes;
    const double start = std::max(free, arrivals[i].ready);
    const double end = start + times.seconds(gathered);
    if (i + 1 < arrivals.size()) {
      const double next = arrivals[i + 1].ready;
      // Where the link would have gone idle before the next is ready, it is not waited for.
      if (next < end && next - start < startup) continue;
    }
    groups.push_back(i + 1);
    free = end;
    gathered = 0;
  }
  return groups;
}

namespace {

// Bellman's recursion, where of each start-up and wait for peers the part `hidden` overlaps with what is sent
// before.
Groups least_groups(std::span<const Arrival> arrivals, const TransferTimes& times, double hidden) {
  const std::size_t n = arrivals.size();
  std::vector<double> prefix(n + 1), best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> from(n + 1);
  for (std::size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + arrivals[i].bytes;
  best[0] = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    double wait = 0;
    for (std::size_t i = j; i-- > 0;) {
      wait = std::max(wait, arrivals[i].wait);
      const double seconds = times.seconds(prefix[j] - prefix[i]);
      const double ahead = hidden * (wait + std::min(times.startup(), seconds));
      const double end = std::max(best[i], arrivals[j - 1].ready + ahead) + (wait + seconds - ahead);
      if (end > best[j]) continue;
      best[j] = end;
      from[j] = i;
    }
  }
  Groups groups;
  for (std::size_t j = n; j > 0; j = from[j]) groups.push_back(j);
  std::ranges::reverse(groups);
  return groups;
}

}  // namespace

Groups merge_exact(std::span<const Arrival> arrivals, const TransferTimes& times) {
  return least_groups(arrivals, times, 0);
}

Groups merge_in_flight(std::span<const Arrival> arrivals, const TransferTimes& times, int in_flight,
                       std::span<const Groups> others) {
  Groups best = merge_exact(arrivals, times);
  if (in_flight == 1) return best;
  double least = finish(arrivals, best, times, in_flight);
  const auto consider = [&](Groups groups) {
    const double end = finish(arrivals, groups, times, in_flight);
    if (end >= least) return;
    least = end;
    best = std::move(groups);
  };
  for (double visible = 1; visible > 1e-3; visible /= 2)
    consider(least_groups(arrivals, times, 1 - visible / 2));
  consider(least_groups(arrivals, times, 1));
  consider(merge_none(arrivals.size()));
  consider(merge_all(arrivals.size()));
  consider(merge_mg_wfbp(arrivals, times));
  for (const Groups& groups : others) consider(groups);
  return best;
}

}  // namespace talweg::train
