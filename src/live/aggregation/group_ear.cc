#include "live/aggregation/group_ear.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "live/udp/multicast.h"

namespace talweg::live {

namespace {

UdpAddress group_at(const wire::SwitchGroup& group) {
  const UdpAddress at(group.at);
  if (!is_group(at) || at.port() == 0) refuse("{} is no multicast group", printable(group.at));
  return at;
}

UdpOptions shared(UdpOptions options) {
  options.shared = true;
  return options;
}

}  // namespace

GroupEar::GroupEar(const wire::SwitchGroup& group, const UdpAddress& own, std::size_t lanes,
                   UdpOptions options, UdpReceiver::ReceiveCall receive)
    : socket_(group_at(group), shared(options)), receiver_(socket_, std::move(receive)), lanes_(lanes) {
  join_group(socket_, own);
}

bool GroupEar::heard() const {
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.probed; });
}

std::optional<wire::SwitchHears> GroupEar::probed(std::size_t lane, std::uint32_t attempt) {
  if (attempt < attempt_) return std::nullopt;
  if (attempt > attempt_) {
    attempt_ = attempt;
    lanes_.assign(lanes_.size(), Lane());
  }
  if (std::exchange(lanes_[lane].probed, true) || !heard()) return std::nullopt;
  return wire::SwitchHears{wire::GroupWord::heard, attempt};
}

std::optional<wire::SwitchHears> GroupEar::result(std::size_t lane, std::uint16_t number, bool to_all,
                                                  bool by_group) {
  if (!heard()) return std::nullopt;
  protocol::ResultTally& tally = lanes_[lane].tally;
  if (to_all && !by_group)
    tally.came_otherwise(number);
  else
    tally.came(number, to_all);
  if (!tally.too_few()) return std::nullopt;
  const protocol::ResultTally full = std::exchange(tally, {});
  return wire::SwitchHears{wire::GroupWord::lost, attempt_, full.missing(), full.of()};
}

}  // namespace talweg::live
