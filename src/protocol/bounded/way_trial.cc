#include "protocol/bounded/way_trial.h"

#include <algorithm>
#include <array>

#include "protocol/bounded/shape.h"

namespace talweg::protocol {

namespace {

// Below the largest: halves, Ethernet's, VXLAN's, what tunnels are often set to, and IPv6's smallest.
constexpr std::array<std::size_t, 6> kSizes = {4096, 2048, 1500, 1450, 1400, 1280};

std::vector<std::size_t> sizes_of(std::size_t largest, std::size_t least) {
  if (largest < least) return {};
  std::vector<std::size_t> sizes{largest};
  for (const std::size_t size : kSizes)
    if (size < largest && size > least) sizes.push_back(size);
  if (largest > least) sizes.push_back(least);
  return sizes;
}

}  // namespace

WayTrial::WayTrial(int self, std::span<const std::size_t> largest, std::size_t least, std::size_t around,
                   std::int64_t now_ns, std::size_t paths)
    : self_(self),
      around_(around),
      paths_(paths),
      ways_(largest.size()),
      to_come_(largest.size() - 1),
      deadline_ns_(kNeverNs),
      round_ns_(now_ns) {
  for (std::size_t r = 0; r < ways_.size(); ++r) {
    if (r == static_cast<std::size_t>(self)) continue;
    ways_[r].sizes = sizes_of(largest[r], least);
    most_sizes_ = std::max(most_sizes_, ways_[r].sizes.size());
  }
}

void WayTrial::all_have_begun(std::int64_t now_ns) {
  deadline_ns_ = std::min(deadline_ns_, now_ns + kPatienceNs);
}

void WayTrial::on(int from, const wire::BoundedTrial& trial) {
  Way& way = ways_[static_cast<std::size_t>(from)];
  way.came = std::max(way.came, around_ + trial.bytes);
  if (!trial.largest || way.all) return;
  way.all = true;
  --to_come_;
}

// Each rank begins with the one behind it: they do not all send to the same one.
bool WayTrial::next(std::int64_t now_ns, int& to, wire::BoundedTrial& trial) {
  if (now_ns < round_ns_) return false;
  const int ranks = static_cast<int>(ways_.size());
  const std::size_t sizes = round_ == 0 ? 1 : most_sizes_, paths = round_ == 0 ? 1 : paths_;
  for (; size_ < sizes; ++size_, path_ = 0)
    for (; path_ < paths; ++path_, behind_ = 1)
      while (behind_ < ranks) {
        to = (self_ + behind_++) % ranks;
        const std::vector<std::size_t>& of = ways_[static_cast<std::size_t>(to)].sizes;
        if (size_ >= of.size()) continue;
        trial = {static_cast<std::uint16_t>(of[size_] - around_), size_ == 0};
        return true;
      }
  round_ns_ = now_ns + std::min(kFirstPauseNs << std::min(round_, 10U), kMostPauseNs);
  ++round_;
  size_ = 0;
  return false;
}

std::int64_t WayTrial::next_time_ns(std::int64_t now_ns) const {
  return ended(now_ns) ? round_ns_ : std::min(round_ns_, deadline_ns_);
}

}  // namespace talweg::protocol
