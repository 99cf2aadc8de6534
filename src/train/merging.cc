#include "train/merging.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace talweg::train {

double finish(std::span<const Arrival> arrivals, const Groups& groups, const TransferTimes& times) {
  double end = 0;
  std::size_t begin = 0;
  for (const std::size_t group_end : groups) {
    double bytes = 0;
    for (std::size_t i = begin; i < group_end; ++i) bytes += arrivals[i].bytes;
    end = std::max(end, arrivals[group_end - 1].ready) + times.seconds(bytes);
    begin = group_end;
  }
  return end;
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

Groups merge_exact(std::span<const Arrival> arrivals, const TransferTimes& times) {
  const std::size_t n = arrivals.size();
  std::vector<double> prefix(n + 1), best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> from(n + 1);
  for (std::size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + arrivals[i].bytes;
  best[0] = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      const double end = std::max(best[i], arrivals[j - 1].ready) + times.seconds(prefix[j] - prefix[i]);
      if (end >= best[j]) continue;
      best[j] = end;
      from[j] = i;
    }
  }
  Groups groups;
  for (std::size_t j = n; j > 0; j = from[j]) groups.push_back(j);
  std::ranges::reverse(groups);
  return groups;
}

}  // namespace talweg::train
