#include "group/switch_vote.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/fail.h"
#include "live/system.h"

namespace talweg::group {

namespace {

using protocol::QueuedSum;

constexpr int kLookMs = 100;  // from one look at who has gone to the next
// Of what ranks say once the sum has ended: an error of its own says more than that a word has not come.
constexpr std::int64_t kGraceNs = 1'000 * live::kMillisecondNs;

}  // namespace

bool all_have(GroupImpl& group, const SwitchStreams& streams, const QueuedSum& sum, Bell& bell,
              std::int64_t deadline_ns, int priority, const std::function<void()>& looked) {
  std::uint64_t mine = 0;
  for (;;) {
    const protocol::SumStream::Progress progress = streams.look(sum);
    if (progress.state == QueuedSum::State::done) mine = std::uint64_t{1} << 32 | progress.number;
    if (progress.state == QueuedSum::State::done || progress.state == QueuedSum::State::failed) break;
    pollfd polled{bell.fd(), POLLIN, 0};
    if (::poll(&polled, 1, kLookMs) > 0) {
      bell.silence();
      continue;
    }
    looked();
    for (int r = 0; r < group.size(); ++r)
      if (r != group.rank())
        if (const auto failure = group.failure_of(r)) throw Error(*failure);
    if (live::now_ns() >= deadline_ns)
      throw_error(ErrorCode::timeout, "the switch has not made the sum in time: {}", streams.describe());
  }
  const std::int64_t left_ns = std::max<std::int64_t>(deadline_ns - live::now_ns(), 0) + kGraceNs;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(
      &mine, all.data(), std::vector<std::size_t>(all.size(), 1), DataType::u64,
      {.timeout = std::chrono::milliseconds(left_ns / live::kMillisecondNs), .priority = priority});
  return mine != 0 && std::ranges::all_of(all, [&](std::uint64_t other) { return other == mine; });
}

}  // namespace talweg::group
