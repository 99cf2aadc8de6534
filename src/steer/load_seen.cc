#include "steer/load_seen.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace talweg::steer {
namespace {

// Below this, at the part `share` of them; 0: there are none.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

// The waits of all arrivals: what they took beyond the quickest of their sender and size.
std::vector<double> waits_of(std::span<const LoadArrival> arrivals, std::size_t senders) {
  std::vector<std::array<std::int64_t, 2>> least(
      senders, {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()});
  for (const LoadArrival& a : arrivals) {
    std::int64_t& quickest = least[a.sender][a.load ? 1 : 0];
    quickest = std::min(quickest, a.came_ns - a.sent_ns);
  }
  std::vector<double> waits;
  waits.reserve(arrivals.size());
  for (const LoadArrival& a : arrivals)
    waits.push_back(static_cast<double>(a.came_ns - a.sent_ns - least[a.sender][a.load ? 1 : 0]));
  return waits;
}

// Which arrivals came before load that had left earlier.
std::vector<bool> overtaking(std::span<const LoadArrival> arrivals, std::size_t senders) {
  std::vector<std::uint32_t> later(senders, std::numeric_limits<std::uint32_t>::max());
  std::vector<bool> overtook(arrivals.size());
  for (std::size_t i = arrivals.size(); i-- > 0;) {
    const LoadArrival& a = arrivals[i];
    overtook[i] = later[a.sender] < a.order;
    if (a.load) later[a.sender] = std::min(later[a.sender], a.order);
  }
  return overtook;
}

// What of a sender's ECT(0) load was lost before its first mark, or at all where there is none.
std::uint32_t lost_before_mark(std::span<const LoadArrival> arrivals, std::size_t sender,
                               std::uint32_t sent) {
  std::uint32_t first_mark = sent;
  for (const LoadArrival& a : arrivals)
    if (a.sender == sender && a.load && a.marked) first_mark = std::min(first_mark, a.number);
  std::vector<bool> came(first_mark);
  for (const LoadArrival& a : arrivals)
    if (a.sender == sender && a.load && a.ecn_capable && a.number < first_mark) came[a.number] = true;
  return static_cast<std::uint32_t>(std::ranges::count(came, false));
}

// As their load came.
double overlap_of(std::span<const LoadArrival> arrivals, std::size_t senders) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> first(senders, kNever), last(senders, 0);
  for (const LoadArrival& a : arrivals) {
    if (!a.load) continue;
    first[a.sender] = std::min(first[a.sender], a.came_ns);
    last[a.sender] = std::max(last[a.sender], a.came_ns);
  }
  if (senders == 0 || std::ranges::count(first, kNever) > 0) return 0;
  const auto [earliest, latest_begin] = std::ranges::minmax(first);
  const auto [earliest_end, latest] = std::ranges::minmax(last);
  if (latest == earliest) return 1;
  return std::max(0.0,
                  static_cast<double>(earliest_end - latest_begin) / static_cast<double>(latest - earliest));
}

double rate_of(std::span<const LoadArrival> arrivals) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  double bits = 0;
  for (const LoadArrival& a : arrivals)
    if (a.stage == LoadStage::full) {
      first = std::min(first, a.came_ns);
      last = std::max(last, a.came_ns);
      bits += 8.0 * a.bytes;
    }
  return last > first ? bits / (static_cast<double>(last - first) * 1e-9) : 0;
}

}  // namespace

LoadSeen load_seen(std::span<const LoadArrival> arrivals, std::span<const LoadSent> sent) {
  LoadSeen seen;
  seen.senders = static_cast<std::int32_t>(sent.size());
  for (std::size_t s = 0; s < sent.size(); ++s) {
    seen.capable_sent += sent[s].capable;
    seen.droppable_sent += sent[s].droppable;
    seen.lost_before_mark += lost_before_mark(arrivals, s, sent[s].capable);
    if (sent[s].seconds > 0) seen.sent_rate += 8.0 * static_cast<double>(sent[s].bytes) / sent[s].seconds;
    for (std::size_t p = 0; p < seen.probes.size(); ++p) seen.probes[p].sent += sent[s].probes[p];
  }
  const std::vector<double> waits = waits_of(arrivals, sent.size());
  const std::vector<bool> overtook = overtaking(arrivals, sent.size());
  std::vector<double> idle, load, marked;
  std::array<std::vector<double>, wire::kDscp.size()> probes;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const LoadArrival& a = arrivals[i];
    if (a.load) {
      (a.ecn_capable ? seen.capable_received : seen.droppable_received) += 1;
      if (a.marked) marked.push_back(waits[i]);
    }
    if (a.stage == LoadStage::idle) idle.push_back(waits[i]);
    if (a.stage != LoadStage::full) continue;
    if (a.load) {
      load.push_back(waits[i]);
      seen.overtook += overtook[i] ? 1 : 0;
    } else {
      probes[a.priority].push_back(waits[i]);
      seen.probes[a.priority].overtook += overtook[i] ? 1 : 0;
    }
  }
  constexpr double kTenth = 0.1;
  // Nearly the least: noise makes waits longer only, and a queue that only marks grows on. Not the least,
  // which another switch may have marked.
  constexpr double kHundredth = 0.01;
  seen.overlap = overlap_of(arrivals, sent.size());
  seen.taken_rate = rate_of(arrivals);
  seen.received = static_cast<std::uint32_t>(load.size());
  seen.marked = static_cast<std::uint32_t>(marked.size());
  seen.idle_ns = quantile(idle, 0.5);
  seen.wait_ns = quantile(load, 0.5);
  seen.most_wait_ns = quantile(load, 1 - kTenth);
  seen.mark_wait_ns = quantile(marked, kHundredth);
  for (std::size_t p = 0; p < probes.size(); ++p) {
    seen.probes[p].received = static_cast<std::uint32_t>(probes[p].size());
    seen.probes[p].wait_ns = quantile(probes[p], 0.5);
  }
  return seen;
}

}  // namespace talweg::steer
