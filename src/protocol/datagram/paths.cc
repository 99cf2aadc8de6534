#include "protocol/datagram/paths.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace talweg::protocol {

namespace {
// The weight of what an acknowledgement says of a path's delay, and of what a trial does: it is news.
// Times as long as it was waited for it a path has to be in use to be as good as any.
constexpr std::int64_t kProved = 10;
constexpr double kOneAnswer = 1.0 / 8, kTrialAnswer = 1.0 / 2;
// More than may be on its way by any path: one without room waits for all others.
constexpr std::uint64_t kNoRoom = 1ULL << 40;
}  // namespace

PathChooser::PathChooser(std::size_t paths) {
  if (paths < 1 || paths > kMostPaths) refuse("{} paths for datagrams: expected 1 to {}", paths, kMostPaths);
  paths_.resize(paths);
  paths_[0].in_use = true;
  paths_[0].room = static_cast<double>(kNoRoom);  // nothing else is known to be there
}

// The smallest cost of those that are in use; 0: not known.
double PathChooser::best() const {
  double best = 0;
  for (const Path& path : paths_)
    if (path.in_use && path.delay_ns > 0 && (best == 0 || cost(path) < best)) best = cost(path);
  return best;
}

double PathChooser::weight(const Path& path, double best) {
  return path.delay_ns > 0 ? std::max(1.0, cost(path) / (kAlike * best)) : 1.0;
}

double PathChooser::share(std::size_t path) const {
  if (!several()) return 1;
  double all = 0;
  const double least = best();
  for (const Path& p : paths_)
    if (p.in_use) all += 1 / weight(p, least);
  return paths_[path].in_use ? 1 / weight(paths_[path], least) / all : 0;
}

std::int64_t PathChooser::detour_ns(std::size_t path) const {
  if (!several() || !paths_[path].trip.known()) return 0;
  std::int64_t least = paths_[path].trip.base_ns();
  for (const Path& p : paths_)
    if (p.in_use && p.trip.known()) least = std::min(least, p.trip.base_ns());
  return paths_[path].trip.base_ns() - least;
}

bool PathChooser::another_in_use(std::size_t path) const {
  for (std::size_t p = 0; p < paths_.size(); ++p)
    if (p != path && paths_[p].in_use) return true;
  return false;
}

std::size_t PathChooser::left() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(paths_, [](const Path& p) { return p.known && !p.in_use; }));
}

std::size_t PathChooser::dead() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      paths_, [](const Path& p) { return p.known && !p.in_use && p.vain >= kDeadAfter; }));
}

std::size_t PathChooser::choose(const SentPackets& sent, std::int64_t now_ns) {
  const double least = best();
  // Where others have answered, one that has not is as one that is tried.
  const auto has_room = [&](std::size_t p) {
    const bool waits = least > 0 && paths_[p].delay_ns == 0;
    return static_cast<double>(sent.bytes_on_their_way(p)) < (waits ? 1.0 : paths_[p].room);
  };
  if (now_ns == burst_ns_ && burst_ < kBurst && burst_bytes_ < kBurstBytes && paths_[current_].in_use &&
      has_room(current_))
    return current_;
  double lowest = std::numeric_limits<double>::infinity();
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    const Path& path = paths_[p];
    if (!path.in_use) continue;
    // With what a burst may be: an idle path that takes ten times as long waits for a tenth of a turn.
    constexpr std::size_t kMayBe = kBurstBytes / 4;
    const std::uint64_t bytes = sent.bytes_on_their_way(p) + kMayBe + (has_room(p) ? 0 : kNoRoom);
    const double load = static_cast<double>(bytes) * weight(path, least);
    if (load > lowest || (load == lowest && path.used >= paths_[current_].used)) continue;
    lowest = load;
    current_ = p;
  }
  // Where nothing comes by any, or by the last one in use, any may be the one that answers.
  if (silent_ || paths_[current_].in_row >= kLeftAfter) current_ = beside(paths_.size(), heard_until_ns_);
  paths_[current_].used = ++bursts_;
  burst_ns_ = now_ns;
  burst_ = burst_bytes_ = 0;
  return current_;
}

// Always in turn, questions could take a dead one each time, and answers another.
std::uint64_t PathChooser::random(std::int64_t now_ns) {
  random_ = (random_ + static_cast<std::uint64_t>(now_ns)) * 0x5851F42D4C957F2DULL + 0x14057B7EF767814FULL;
  return random_ >> 33;
}

std::size_t PathChooser::first_well(std::uint64_t from, std::size_t but, std::int64_t now_ns) const {
  for (const bool any : {now_ns >= heard_until_ns_, true}) {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      const std::size_t p = (from + i) % paths_.size();
      const Path& is = paths_[p];
      if (p == but || (!any && (!is.in_use || is.in_row > 0 || is.delay_ns == 0))) continue;
      return p;
    }
  }
  return 0;
}

std::size_t PathChooser::beside(std::size_t path, std::int64_t now_ns) {
  return several() ? first_well(random(now_ns), path, now_ns) : 0;
}

std::size_t PathChooser::in_turn(Turn& turn, std::int64_t now_ns) {
  if (!several()) return 0;
  if (turn.at++ % paths_.size() == 0) turn.first = random(now_ns);
  return first_well(turn.first + turn.at, paths_.size(), now_ns);
}

std::optional<std::size_t> PathChooser::trial(const SentPackets& sent, std::int64_t now_ns) {
  if (!several()) return std::nullopt;
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    Path& path = paths_[p];
    if (now_ns < path.trial_ns || sent.bytes_on_their_way(p) > 0) continue;
    path.trying = true;
    path.trial_ns = now_ns + (path.in_use ? kQuietNs : path.wait_ns);
    return p;
  }
  return std::nullopt;
}

void PathChooser::arrived(std::size_t path, std::size_t bytes, std::int64_t trip_ns, std::int64_t now_ns) {
  if (!several()) return;
  Path& p = paths_[path];
  silent_ = false;
  p.pending_ns = std::min(p.pending_ns, trip_ns);
  p.in_row = p.vain = 0;
  p.missed = false;
  answered_ = true;
  p.room += static_cast<double>(bytes);
  p.loss -= p.loss * kOneDatagram;
  p.trial_ns = now_ns + kQuietNs;
  heard_until_ns_ = now_ns + 2 * kQuietNs;
  if (p.in_use) return;
  p.in_use = true;
  p.since_ns = now_ns;
  if (std::exchange(p.known, true)) ++times_back_;
}

void PathChooser::heard(std::size_t highest, std::int64_t held_ns, std::int64_t now_ns) {
  if (!several()) return;
  const bool answered = std::exchange(answered_, false);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (answered && std::exchange(path.missed, false)) lost(i, now_ns);
    const std::int64_t trip_ns = std::exchange(path.pending_ns, kNoTrip);
    if (trip_ns == kNoTrip) continue;
    path.known = true;
    path.trip.sample(trip_ns, i == highest ? held_ns : 0, now_ns);
    const bool tried = std::exchange(path.trying, false);
    if (tried) {
      path.loss /= 2;
      path.room = kFirstRoom;
    }
    const auto delay_ns = static_cast<double>(path.trip.delay_ns());
    if (path.delay_ns == 0) path.delay_ns = delay_ns;
    path.delay_ns += (delay_ns - path.delay_ns) * (tried ? kTrialAnswer : kOneAnswer);
  }
}

void PathChooser::lost(std::size_t path, std::int64_t now_ns) {
  if (!several()) return;
  Path& p = paths_[path];
  ++p.in_row;
  p.loss += (1 - p.loss) * kOneDatagram;
  const bool tried = std::exchange(p.trying, false);
  if (p.in_use) {
    if (p.in_row < kLeftAfter || !another_in_use(path)) return;
    p.in_use = false;
    // One that comes and goes is not tried as soon each time.
    const bool proved = now_ns - p.since_ns > kProved * p.wait_ns;
    p.wait_ns = proved ? kFirstTrialNs : std::min(2 * p.wait_ns, kMostTrialNs);
  } else if (tried) {
    ++p.vain;
    p.wait_ns = std::min(2 * p.wait_ns, kMostTrialNs);
    if (p.known || p.in_row < kLeftAfter) {
      p.trial_ns = now_ns + p.wait_ns;
      return;
    }
  } else {
    return;  // it had left before the path was
  }
  p.known = true;
  p.trial_ns = now_ns + p.wait_ns;
  ++times_left_;
}

}  // namespace talweg::protocol
