#include "steer/load_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace talweg::steer {
namespace {

using LoadTexts = std::vector<std::string>;

// Fewer marks and losses than this are strays: other traffic, a bad cable.
constexpr double kStrayMarks = 0.02, kStrayLosses = 0.05;
constexpr double kTogether = 0.6;  // of the time
constexpr double kSent = 0.9;      // of what was asked for
// Probes that overtake: where queues are strict nearly all do, in one queue none.
constexpr double kServedBefore = 0.5;
constexpr double kNotServedBefore = 0.15;
// Load that overtakes load: beyond this, order says nothing.
constexpr double kMixedUp = 0.2;
constexpr std::uint32_t kLeastProbes = 8;
// Load that waits: so much longer than probes did in an idle network, and so many packets of it.
constexpr double kLongerThanIdle = 4;
constexpr double kQueuedBytes = 6000;
// Of ECT(0) load as much is lost as of Not-ECT load, or at most so much of that.
constexpr double kSelective = 0.25;
constexpr double kLostAlike = 0.5;

constexpr const char* kSetUp = "docs/bounded-loss.md, \"What switches can do\", shows how.";

const char* name_of(int priority) {
  return wire::kDscpNames[static_cast<std::size_t>(priority)];
}

double part(std::uint32_t some, std::uint32_t all) {
  return all == 0 ? 0 : static_cast<double>(some) / all;
}
double lost(std::uint32_t sent, std::uint32_t received) {
  return part(sent - std::min(sent, received), sent);
}
double capable_lost(const LoadSeen& load) {
  return lost(load.capable_sent, load.capable_received);
}
double droppable_lost(const LoadSeen& load) {
  return lost(load.droppable_sent, load.droppable_received);
}

std::string bytes_text(double bytes) {
  constexpr double kKiB = 1024;
  return bytes < kKiB * kKiB ? fmt::format("{:.0f} KiB", bytes / kKiB)
                             : fmt::format("{:.1f} MiB", bytes / (kKiB * kKiB));
}
std::string milliseconds_text(double ns) {
  return fmt::format("{:.{}f} ms", ns * 1e-6, ns < 1e7 ? 2 : 0);
}
std::string rate_text(double rate) {
  return rate < 1e9 ? fmt::format("{:.0f} Mbit/s", rate * 1e-6) : fmt::format("{:.1f} Gbit/s", rate * 1e-9);
}

bool marks(const LoadSeen& load) {
  return part(load.marked, load.capable_received) > kStrayMarks;
}

// A queue was longer than something in the network takes.
bool overflowed(const LoadSeen& load) {
  return marks(load) || capable_lost(load) > kStrayLosses || droppable_lost(load) > kStrayLosses;
}

std::string too_busy(const LoadSeen& load) {
  return fmt::format("the senders' hosts are too busy: they sent {} of {}", rate_text(load.sent_rate),
                     rate_text(load.asked_rate));
}

// Why a load says nothing; empty: it does.
std::string doubt(const LoadSeen& load) {
  if (load.dropped_at_host > 0)
    return fmt::format(
        "the receiver's own socket dropped {} datagrams: its host is too busy, or its buffer too small",
        load.dropped_at_host);
  if (load.received == 0) return fmt::format("nothing of the load of {} came", name_of(load.priority));
  if (!was_together(load)) return "the senders did not send at the same time: their hosts are too busy";
  if (!was_full(load) && !was_sent(load)) return "no queue built up, as " + too_busy(load);
  if (!was_full(load))
    return fmt::format("no queue built up: {} were sent and {} came", rate_text(load.sent_rate),
                       rate_text(load.taken_rate));
  return {};
}

FabricCheck unknown(const char* what, const std::string& why, const std::string& to_do = "") {
  return {what, Verdict::cannot_tell, why, to_do};
}

constexpr const char* kMoreLoad =
    "Run it when hosts and network are idle, and with more hosts: together they have to send more than one "
    "link takes.";

// The first load that says nothing, if all are asked.
std::string first_doubt(std::span<const LoadSeen> loads) {
  if (loads.empty()) return "no link was filled";
  for (const LoadSeen& load : loads)
    if (std::string why = doubt(load); !why.empty()) return why;
  return {};
}

// ": ...", where that may be why a queue was short.
std::string if_too_busy(const std::vector<const LoadSeen*>& loads) {
  for (const LoadSeen* load : loads)
    if (!was_sent(*load)) return ": " + too_busy(*load);
  return {};
}

LoadTexts names_of(const std::vector<const LoadSeen*>& loads) {
  LoadTexts names;
  for (const LoadSeen* load : loads) names.emplace_back(name_of(load->priority));
  return names;
}

// " (AF41, AF31)"; empty where it is so of all.
std::string of_which(const std::vector<const LoadSeen*>& some, std::size_t all) {
  return some.size() == all ? "" : fmt::format(" ({})", fmt::join(names_of(some), ", "));
}

double most_lost(const std::vector<const LoadSeen*>& loads) {
  double most = 0;
  for (const LoadSeen* load : loads) most = std::max(most, capable_lost(*load));
  return most;
}

std::string largest_queue(const std::vector<const LoadSeen*>& loads) {
  double most = 0;
  for (const LoadSeen* load : loads) most = std::max(most, load->bytes_of(load->most_wait_ns));
  return bytes_text(most);
}

// The queue may have been the sender's own.
FabricCheck unless_own(FabricCheck check, bool own_queue) {
  if (check.verdict != Verdict::fail || !own_queue) return check;
  check.verdict = Verdict::cannot_tell;
  check.seen = "of two hosts the sender's own card has the queue: " + check.seen;
  check.to_do = "Run it on three hosts or more.";
  return check;
}

}  // namespace

bool was_together(const LoadSeen& load) {
  return load.overlap >= kTogether;
}

bool was_sent(const LoadSeen& load) {
  return load.sent_rate >= kSent * load.asked_rate;
}

bool was_full(const LoadSeen& load) {
  if (overflowed(load)) return true;
  return load.wait_ns > kLongerThanIdle * load.idle_ns && load.bytes_of(load.wait_ns) > kQueuedBytes;
}

bool was_disturbed(const LoadSeen& load) {
  return !was_together(load) || (!was_sent(load) && !overflowed(load));
}

FabricCheck check_marks(std::span<const LoadSeen> loads, bool own_queue) {
  if (const std::string why = first_doubt(loads); !why.empty()) return unknown("marks", why, kMoreLoad);
  std::vector<const LoadSeen*> off, late, unclear;
  double least = 0, most = 0;
  for (const LoadSeen& load : loads) {
    const double begins = load.bytes_of(load.mark_wait_ns);
    if (!marks(load)) {
      const bool long_enough = load.bytes_of(load.most_wait_ns) > 2 * kKeptBytes;
      (capable_lost(load) > kStrayLosses || long_enough ? off : unclear).push_back(&load);
    } else if (part(load.lost_before_mark, load.capable_sent) > kStrayLosses || begins > 2 * kKeptBytes) {
      late.push_back(&load);
    }
    least = least == 0 ? begins : std::min(least, begins);
    most = std::max(most, begins);
  }
  const std::string begin = fmt::format(
      "about {}", most < 2 * least ? bytes_text(most) : bytes_text(least) + " to " + bytes_text(most));
  if (!off.empty())
    return unless_own({"marks", Verdict::fail,
                       fmt::format("off{}: ECT(0) is not marked, with {} of queue and {:.0f} % lost",
                                   of_which(off, loads.size()), largest_queue(off), 100 * most_lost(off)),
                       fmt::format("Switch ECN on, with RED, in the queues that gradients take. {}", kSetUp)},
                      own_queue);
  if (!late.empty()) {
    const double before = part(late.front()->lost_before_mark, late.front()->capable_sent);
    return unless_own(
        {"marks", Verdict::fail,
         fmt::format("too late{}: ECT(0) is marked from {} of queue on{}", of_which(late, loads.size()),
                     begin,
                     before > kStrayLosses ? fmt::format(", after {:.0f} % were lost", 100 * before) : ""),
         fmt::format("Have RED's thresholds below {}, and below what the queue holds. {}",
                     bytes_text(kKeptBytes), kSetUp)},
        own_queue);
  }
  if (!unclear.empty())
    return unknown("marks",
                   fmt::format("no marks{}, but the queue was only {}{}", of_which(unclear, loads.size()),
                               largest_queue(unclear), if_too_busy(unclear)));
  return {"marks", Verdict::pass, fmt::format("ECT(0) is marked from {} of queue on", begin), ""};
}

FabricCheck check_selective(std::span<const LoadSeen> loads, bool own_queue) {
  if (const std::string why = first_doubt(loads); !why.empty()) return unknown("selective", why, kMoreLoad);
  std::vector<const LoadSeen*> off, unclear;
  double capable = 0, droppable = 0;  // what of them is lost, at worst
  for (const LoadSeen& load : loads) {
    const double c = capable_lost(load), d = droppable_lost(load);
    capable = std::max(capable, c);
    droppable = std::max(droppable, d);
    const bool none = std::max(c, d) <= kStrayLosses;
    const bool long_enough = load.bytes_of(load.most_wait_ns) > 2 * kKeptBytes;
    if (none ? long_enough : c > kLostAlike * d)
      off.push_back(&load);
    else if (none || c > kSelective * d)
      unclear.push_back(&load);
  }
  const std::string parts =
      fmt::format("{:.0f} % of Not-ECT and {:.0f} % of ECT(0) are lost", 100 * droppable, 100 * capable);
  if (!off.empty())
    return unless_own(
        {"selective", Verdict::fail,
         fmt::format("off{}: {}, with {} of queue", of_which(off, loads.size()), parts, largest_queue(off)),
         fmt::format("Switch ECN on, with RED, both of its thresholds the same; "
                     "by itself a queue drops what comes last. {}",
                     kSetUp)},
        own_queue);
  if (!unclear.empty())
    return unknown("selective",
                   fmt::format("{}{}, with {} of queue{}", parts, of_which(unclear, loads.size()),
                               largest_queue(unclear), if_too_busy(unclear)));
  return {"selective", Verdict::pass, parts, ""};
}

FabricCheck check_priorities(std::span<const LoadSeen> loads, std::span<const int> priorities,
                             bool own_queue) {
  if (const std::string why = first_doubt(loads); !why.empty()) return unknown("priorities", why, kMoreLoad);
  LoadTexts wrong, alike, unclear;
  std::size_t pairs = 0;  // of which the first is to overtake the second
  const LoadSeen* last = &loads[0];
  for (const LoadSeen& load : loads) {
    last = load.priority > last->priority ? &load : last;
    if (part(load.overtook, load.received) > kMixedUp)
      return unknown("priorities", fmt::format("{:.0f} % of packets of one priority overtake each other",
                                               100 * part(load.overtook, load.received)));
    for (const int p : priorities) {
      if (p == load.priority) continue;
      const ProbesSeen& probes = load.probes[static_cast<std::size_t>(p)];
      const double overtook = part(probes.overtook, probes.sent);
      const bool before = p < load.priority;  // as it should be
      pairs += before ? 1 : 0;
      if (probes.sent < kLeastProbes)
        unclear.push_back(fmt::format("{} probes of {}", probes.sent, name_of(p)));
      else if (!before && overtook >= kServedBefore)
        wrong.push_back(fmt::format("{} before {}", name_of(p), name_of(load.priority)));
      else if (before && overtook <= kNotServedBefore && was_sent(load))  // else no load may have waited
        alike.push_back(fmt::format("{} before {}", name_of(p), name_of(load.priority)));
      else if (before && overtook < kServedBefore)
        unclear.push_back(fmt::format("{:.0f} % of {} overtake {}{}", 100 * overtook, name_of(p),
                                      name_of(load.priority), if_too_busy({&load})));
    }
  }
  const int first = *std::ranges::min_element(priorities);
  const std::string waits =
      fmt::format("while {} waits {}, {} waits {}", name_of(last->priority), milliseconds_text(last->wait_ns),
                  name_of(first), milliseconds_text(last->probes[static_cast<std::size_t>(first)].wait_ns));
  const auto some = [](const LoadTexts& texts) {
    return texts.size() < 3 ? fmt::format("{}", fmt::join(texts, ", "))
                            : fmt::format("{} and {} more", texts.front(), texts.size() - 1);
  };
  const std::string map = fmt::format("Have switches choose strict priority queues by DSCP. {}", kSetUp);
  if (!wrong.empty())
    return unless_own(
        {"priorities", Verdict::fail, fmt::format("wrong order: {} is served first", some(wrong)), map},
        own_queue);
  if (alike.size() == pairs && pairs > 0)
    return unless_own({"priorities", Verdict::fail, fmt::format("off: {}", waits), map}, own_queue);
  if (!alike.empty())
    return unless_own({"priorities", Verdict::fail, fmt::format("in one queue, not {}", some(alike)), map},
                      own_queue);
  if (!unclear.empty()) return unknown("priorities", some(unclear));
  return {"priorities", Verdict::pass, waits, ""};
}

}  // namespace talweg::steer
