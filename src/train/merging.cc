#include "train/merging.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

namespace talweg::train {
namespace {

constexpr double kSumsDiffer = 1e-12;  // by which sums in another order differ

}  // namespace

double finish(std::span<const Arrival> arrivals, const Groups& groups, const TransferTimes& times,
              int in_flight) {
  const auto most = static_cast<std::size_t>(in_flight);
  // Of groups that have started: when the wait and the start-up are over, and what is then to be served.
  // Whichever is first over with them is served first.
  using Lead = std::tuple<double, std::size_t, double>;
  std::priority_queue<Lead, std::vector<Lead>, std::greater<>> leads;
  std::vector<double> ends;  // of groups that were served
  const auto serve = [&] {
    const auto& [over, group, rest] = leads.top();
    ends.push_back(std::max(ends.empty() ? 0 : ends.back(), over) + rest);
    leads.pop();
  };
  double start = 0;
  std::size_t begin = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double bytes = 0, wait = 0;
    for (std::size_t i = begin; i < groups[g]; ++i) {
      bytes += arrivals[i].bytes;
      wait = std::max(wait, arrivals[i].wait);
    }
    begin = groups[g];
    const double seconds = times.seconds(bytes), startup = times.startup_of(bytes);
    start = std::max(start, arrivals[begin - 1].ready);
    if (g >= most) {
      while (ends.size() <= g - most) serve();
      start = std::max(start, ends[g - most]);
    }
    leads.emplace(start + wait + startup, g, seconds - startup);
  }
  while (!leads.empty()) serve();
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

// Whether no size takes less than a smaller one.
bool never_falls(const TransferTimes& times) {
  const auto& pieces = times.pieces();
  for (std::size_t k = 1; k < pieces.size(); ++k) {
    const auto at_begin = [&](const TransferTimes::Piece& piece) {
      return piece.startup + piece.per_byte * pieces[k].from;
    };
    if (at_begin(pieces[k]) < at_begin(pieces[k - 1])) return false;
  }
  return true;
}

// Bellman's recursion, where of each start-up and wait for peers the part `hidden` overlaps with what is sent
// before.
Groups least_groups(std::span<const Arrival> arrivals, const TransferTimes& times, double hidden) {
  const std::size_t n = arrivals.size();
  const bool grows = never_falls(times);
  std::vector<double> prefix(n + 1), best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> from(n + 1);
  for (std::size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + arrivals[i].bytes;
  best[0] = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    double wait = 0;
    for (std::size_t i = j; i-- > 0;) {
      wait = std::max(wait, arrivals[i].wait);
      const double bytes = prefix[j] - prefix[i], seconds = times.seconds(bytes);
      // A group that begins still earlier waits and takes as long at least.
      if (grows && arrivals[j - 1].ready + wait + seconds > best[j] * (1 + kSumsDiffer)) break;
      const double ahead = hidden > 0 ? hidden * (wait + times.startup_of(bytes)) : 0;
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
  // Who waits lets others by, so groups for ranks that are punctual may be the better ones.
  std::vector<Arrival> punctual(arrivals.begin(), arrivals.end());
  for (Arrival& arrival : punctual) arrival.wait = 0;
  const bool late = !std::ranges::equal(arrivals, punctual);
  const auto consider_hidden = [&](double hidden) {
    consider(least_groups(arrivals, times, hidden));
    if (late) consider(least_groups(punctual, times, hidden));
  };
  for (double visible = 1; visible > 1e-3; visible /= 2) consider_hidden(1 - visible / 2);
  consider_hidden(1);
  consider(merge_none(arrivals.size()));
  consider(merge_all(arrivals.size()));
  consider(merge_mg_wfbp(arrivals, times));
  for (const Groups& groups : others) consider(groups);
  return best;
}

}  // namespace talweg::train
