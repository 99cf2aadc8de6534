#include "live/engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace talweg::live {

namespace {
// With all peers on this host, handles only carry doorbells and deaths: looking at them every time would cost
// a system call for each look at memory.
constexpr unsigned kHandlesEvery = 64;
constexpr std::int64_t kMostBetweenChecksNs = 1'000'000'000;
constexpr std::int64_t kGoodbyePatienceNs = 200'000'000;
constexpr unsigned kGoodbyePauseUs = 200;
}  // namespace

Engine::Engine(int rank, Mesh mesh, const LinkOptions& options, FrameHandler& handler)
    : host_timeout_ns_(options.host_timeout_ns),
      made_(make_links(rank, std::move(mesh), options, loop_, handler)),
      is_dirty_(made_.by_rank.size(), false) {
  for (const auto& link : made_.by_rank) {
    if (!link) continue;
    links_.push_back(link.get());
    if (link->local()) local_.push_back(link.get());
  }
}

bool Engine::send(int to, OutFrame frame) {
  const auto peer = static_cast<std::size_t>(to);
  Link* const link = made_.by_rank[peer].get();
  if (link == nullptr || link->gone()) return true;
  if (!is_dirty_[peer]) {
    is_dirty_[peer] = true;
    dirty_.push_back(link);
  }
  return link->send(std::move(frame));
}

void Engine::flush() {
  if (dirty_.empty()) return;
  // Orders what links have written to memory before their look at who sleeps, as prepare_sleep does the other
  // way round.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // on_sent may lead to further sends, which make peers dirty again.
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    Link& link = *dirty_[i];
    is_dirty_[static_cast<std::size_t>(link.peer())] = false;
    if (!link.gone()) link.flush();
  }
  dirty_.clear();
}

bool Engine::poll(bool thoroughly) {
  bool any = false;
  for (Link* const link : local_) any = link->poll() || any;
  if (!all_local() || thoroughly || (!any && ++idle_polls_ >= kHandlesEvery)) {
    idle_polls_ = 0;
    any = loop_.poll() || any;
  }
  flush();
  return any;
}

bool Engine::prepare_sleep() {
  for (Link* const link : local_) {
    if (link->prepare_sleep()) continue;
    for (Link* const other : local_) other->awake();
    return false;
  }
  idle_polls_ = kHandlesEvery;  // whatever wakes us is a handle
  return true;
}

void Engine::sleep(int ms) {
  loop_.sleep(ms);
  for (Link* const link : local_) link->awake();
}

std::int64_t Engine::check_hosts() {
  for (Link* const link : links_)
    if (!link->gone()) link->check_host();
  flush();
  return std::min(host_timeout_ns_ / 32, kMostBetweenChecksNs);
}

void Engine::cancel(std::uint32_t group, std::uint64_t run) {
  for (Link* const link : links_) link->cancel(group, run);
}

void Engine::pace(int peer, double bytes_per_second) {
  Link* const link = made_.by_rank[static_cast<std::size_t>(peer)].get();
  if (link != nullptr && !link->gone()) link->pace(bytes_per_second);
}

void Engine::say_goodbye() {
  const std::int64_t until = now_ns() + kGoodbyePatienceNs;
  for (;;) {
    bool parted = true;
    for (Link* const link : links_) parted = link->part() && parted;
    if (parted || now_ns() >= until) return;
    ::usleep(kGoodbyePauseUs);
  }
}

bool Engine::unsent() const {
  return std::ranges::any_of(links_, [](const Link* link) { return link->unsent(); });
}

bool Engine::whole(int ranks) const {
  return std::none_of(made_.by_rank.begin(), made_.by_rank.begin() + ranks,
                      [](const auto& link) { return link && link->gone(); });
}

EngineStatistics Engine::statistics() const {
  EngineStatistics sum{.shared_bytes = made_.shared_bytes};
  for (const Link* const link : links_) {
    const LinkStatistics s = link->statistics();
    sum.bytes_sent += s.bytes_sent;
    sum.bytes_received += s.bytes_received;
  }
  return sum;
}

std::vector<PeerStatistics> Engine::peer_statistics() const {
  std::vector<PeerStatistics> list;
  for (const Link* const link : links_)
    if (!link->gone()) list.push_back(link->measured());
  return list;
}

}  // namespace talweg::live
