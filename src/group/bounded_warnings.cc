#include "group/bounded_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/units.h"
#include "live/udp/udp_socket.h"
#include "protocol/bounded/exchange.h"

namespace talweg::group {

// Below protocol::ExchangeOptions::most_queue_bytes a sender cannot fill the queue that the rate control
// means it to have: links stand idle while it waits for acknowledgements. Where a full buffer shared by so
// many ranks is less than that, no setting helps, and nothing is said.
void warn_of_credits(const Group& group, std::span<const Introduction> all, const std::vector<int>& servers) {
  if (group.rank() != 0) return;
  const std::size_t others = all.size() - 1;
  const auto wanted = static_cast<std::size_t>(live::UdpOptions{}.receive_bytes);
  const auto needed = static_cast<std::size_t>(protocol::ExchangeOptions{}.most_queue_bytes);
  const std::size_t least = std::min(needed, wanted / others);
  std::size_t ranks = 0, worst = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool sums = servers.empty() || std::ranges::count(servers, static_cast<int>(r)) > 0;
    if (!sums || all[r].credit >= least) continue;
    if (ranks++ == 0 || all[r].credit < all[worst].credit) worst = r;
  }
  if (ranks == 0) return;
  const auto bytes = [](std::size_t n) { return to_string(Bytes{static_cast<std::int64_t>(n)}); };
  const std::size_t credit = all[worst].credit;
  Logger(group.rank())
      .log(LogLevel::warn, "bounded",
           "the kernel gives rank {} ({}) {} to receive datagrams, {} for each of {} senders, where {} are "
           "needed{}: over a round trip of 100 us none of them sends more than {:.2f} Gbit/s, and bounded "
           "sums "
           "are slower; more with sysctl -w net.core.rmem_max={}",
           worst, group.host_of(static_cast<int>(worst)), bytes(credit * others), bytes(credit), others,
           bytes(needed), ranks > 1 ? fmt::format(" (so it is for {} ranks)", ranks) : "",
           static_cast<double>(credit) * 8 / 100e-6 / 1e9, wanted);
}

void warn_of_datagrams(const Group& group, live::BoundedExchange& exchange) {
  const Logger log(group.rank());
  if (const int r = exchange.left_a_path(); r >= 0)
    log.log(LogLevel::warn, "net", "bounded loss: {}",
            live::paths_left(exchange.paths(r).dead(), exchange.paths(r).paths(),
                             fmt::format("rank {} ({})", r, group.host_of(r))));
  if (const std::string refusal = exchange.class_refusal(); !refusal.empty())
    log.log(LogLevel::warn, "net", "bounded loss: {}", refusal);
}

// After ranks have told each other their calls, data take half a round trip, what was lost of them another
// half, and the sums, too.
void DeadlineWarning::look(const GroupImpl& group, std::int64_t deadline_ns) {
  if (deadline_ns >= shortest_ns_) return;
  shortest_ns_ = deadline_ns;
  const std::vector<std::int64_t> trips =
      round_trips_ns_.empty() ? group.least_round_trips_ns() : round_trips_ns_;
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> ranks;
  std::int64_t longest_ns = 0;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t trip_ns = trips[static_cast<std::size_t>(r)];
    if (r == group.rank() || trip_ns <= deadline_ns) continue;
    longest_ns = std::max(longest_ns, trip_ns);
    ranks.push_back(fmt::format("rank {} ({})", r, group.host_of(r)));
  }
  if (ranks.empty()) return;
  shortest_ns_ = 0;
  const std::size_t unnamed = ranks.size() - std::min(ranks.size(), kMostNamed);
  ranks.resize(ranks.size() - unnamed);
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  Logger(group.rank())
      .log(LogLevel::warn, "bounded",
           "a deadline of {:.6g} ms is shorter than the round trip to {}{}, which takes {}{:.6g} ms: no call "
           "of bounded sums ends by then; give it several round trips, by TALWEG_TIMEOUT or the call's own "
           "timeout: failures are found so much later",
           ms(deadline_ns), fmt::join(ranks, ", "), unnamed > 0 ? fmt::format(" and {} more", unnamed) : "",
           ranks.size() > 1 ? "up to " : "", ms(longest_ns));
}

}  // namespace talweg::group
