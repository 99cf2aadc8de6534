#include "player.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>

#include "values.h"

namespace talweg::soak {

namespace {

constexpr std::size_t kWindow = 4;  // steps in flight

Values values_of(const Step& step, int ranks) {
  return {step.seed, step.type, step.reduction, ranks};
}

std::size_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Elements in front of part `index`.
std::size_t offset(const std::vector<std::size_t>& counts, int index) {
  return sum({counts.data(), static_cast<std::size_t>(index)});
}

// all_to_all: what `from` has for each rank.
std::vector<std::size_t> row(const Step& step, int from, int ranks) {
  const auto* first = step.counts.data() + static_cast<std::ptrdiff_t>(from) * ranks;
  return {first, first + ranks};
}

std::vector<std::size_t> column(const Step& step, int to, int ranks) {
  std::vector<std::size_t> counts;
  for (int from = 0; from < ranks; ++from)
    counts.push_back(row(step, from, ranks)[static_cast<std::size_t>(to)]);
  return counts;
}

}  // namespace

Player::Player(std::shared_ptr<Group> all, std::uint64_t seed, std::uint64_t stream, std::size_t max_bytes)
    : max_bytes_(max_bytes),
      steps_(seed, stream),
      whims_(seed, 1000 * (stream + 1) + static_cast<std::uint64_t>(all->rank())),
      groups_(kGroups),
      sizes_(kGroups, 0) {
  sizes_[0] = all->size();
  groups_[0] = std::move(all);
  start_afresh();
}

void Player::start_afresh() {
  for (std::size_t g = 1; g < kGroups; ++g) {
    Step step;
    step.group = g;
    step.members.resize(static_cast<std::size_t>(sizes_[0]));
    std::iota(step.members.begin(), step.members.end(), 0);
    regroup(step);
  }
}

void Player::play(long steps) {
  for (long i = 0; i < steps; ++i, ++number_) {
    Step step = draw(steps_, sizes_, max_bytes_);
    pause();
    if (step.kind == Step::Kind::regroup) {
      while (!pending_.empty()) finish_one();
      regroup(step);
      continue;
    }
    if (!groups_[step.group]) continue;
    pending_.push_back(std::make_unique<Pending>());
    Pending& p = *pending_.back();
    p.step = std::move(step);
    p.number = number_;
    start(p);
    const std::size_t window = p.step.at_once ? 1 : kWindow;
    while (pending_.size() >= window) finish_one();
  }
  while (!pending_.empty()) finish_one();
}

void Player::abort(const std::string& why) {
  for (const auto& group : groups_)
    if (group) group->abort(why);
}

void Player::regroup(const Step& step) {
  groups_[step.group] = groups_[0]->split(step.members);
  sizes_[step.group] = static_cast<int>(step.members.size());
}

void Player::start(Pending& p) {
  if (p.step.kind == Step::Kind::messages) {
    start_messages(p);
  } else {
    start_collective(p);
  }
}

void Player::start_messages(Pending& p) {
  Group& g = *groups_[p.step.group];
  const int n = g.size();
  const std::size_t count = p.step.counts[0];
  const auto tag = static_cast<std::uint32_t>(p.number);  // of this step alone: any source is one source
  p.in.resize(count * size_of(p.step.type));
  p.out.assign(p.in.size(), std::byte{0x5a});
  values_of(p.step, n).write(p.in.data(), g.rank(), 0, count);
  CallOptions options;
  options.priority = p.step.priority;
  const int from = p.step.any_source ? kAnyRank : (g.rank() + n - p.step.shift) % n;
  p.works.push_back(g.start_recv(p.out.data(), count, p.step.type, from, tag, options));
  p.works.push_back(
      g.start_send(p.in.data(), count, p.step.type, (g.rank() + p.step.shift) % n, tag, options));
}

void Player::start_collective(Pending& p) {
  const Step& s = p.step;
  Group& g = *groups_[s.group];
  const int n = g.size();
  const int me = g.rank();
  const std::size_t width = size_of(s.type);
  const auto own = static_cast<std::size_t>(me);
  const std::size_t total = sum(s.counts);
  CallOptions options;
  options.priority = s.priority;
  const Values values = values_of(s, n);
  const auto buffers = [&](std::size_t in, std::size_t out) {
    p.in.resize(in * width);
    p.out.assign(out * width, std::byte{0x5a});
    values.write(p.in.data(), me, 0, in);
  };
  switch (s.op) {
    case Collective::all_reduce: {
      const bool odd = s.kind == Step::Kind::disagree && me == s.root;
      buffers(total + (odd ? 1 : 0), total + (odd ? 1 : 0));
      const bool in_place = s.in_place && s.kind != Step::Kind::disagree;
      if (in_place) p.out = p.in;
      p.works.push_back(g.start_all_reduce(in_place ? p.out.data() : p.in.data(), p.out.data(),
                                           total + (odd ? 1 : 0), s.type, s.reduction, options));
      break;
    }
    case Collective::reduce:
      buffers(total, me == s.root ? total : 0);
      p.works.push_back(
          g.start_reduce(p.in.data(), p.out.data(), total, s.type, s.reduction, s.root, options));
      break;
    case Collective::broadcast:
      buffers(me == s.root ? total : 0, total);
      if (me == s.root) p.out = p.in;
      p.works.push_back(g.start_broadcast(p.out.data(), total, s.type, s.root, options));
      break;
    case Collective::reduce_scatter:
      buffers(total, s.counts[own]);
      p.works.push_back(
          g.start_reduce_scatter(p.in.data(), p.out.data(), s.counts, s.type, s.reduction, options));
      break;
    case Collective::all_gather:
      buffers(s.counts[own], total);
      p.works.push_back(g.start_all_gather(p.in.data(), p.out.data(), s.counts, s.type, options));
      break;
    case Collective::all_to_all: {
      const auto give = row(s, me, n);
      const auto get = column(s, me, n);
      buffers(sum(give), sum(get));
      p.works.push_back(g.start_all_to_all(p.in.data(), give, p.out.data(), get, s.type, options));
      break;
    }
    case Collective::gather:
      buffers(s.counts[own], me == s.root ? total : 0);
      p.works.push_back(g.start_gather(p.in.data(), p.out.data(), s.counts, s.type, s.root, options));
      break;
    case Collective::scatter:
      buffers(me == s.root ? total : 0, s.counts[own]);
      p.works.push_back(g.start_scatter(p.in.data(), p.out.data(), s.counts, s.type, s.root, options));
      break;
    default:
      p.works.push_back(g.start_barrier(options));
  }
}

// Elements of the output that a serial run would not have given.
std::size_t Player::wrong(const Pending& p) const {
  const Step& s = p.step;
  const Group& g = *groups_[s.group];
  const int n = g.size();
  const int me = g.rank();
  const std::size_t width = size_of(s.type);
  const auto own = static_cast<std::size_t>(me);
  const std::size_t total = sum(s.counts);
  const Values values = values_of(s, n);
  std::size_t bad = 0;
  const auto parts = [&](const std::vector<std::size_t>& counts, auto&& first) {
    const std::byte* at = p.out.data();
    for (int from = 0; from < n; ++from) {
      const std::size_t count = counts[static_cast<std::size_t>(from)];
      bad += values.wrong(at, from, first(from), count);
      at += count * width;
    }
  };
  const auto from_start = [](int) { return std::size_t{0}; };
  switch (s.op) {
    case Collective::all_reduce:
      return values.wrong_reduced(p.out.data(), 0, total);
    case Collective::reduce:
      return me == s.root ? values.wrong_reduced(p.out.data(), 0, total) : 0;
    case Collective::broadcast:
      return values.wrong(p.out.data(), s.root, 0, total);
    case Collective::reduce_scatter:
      return values.wrong_reduced(p.out.data(), offset(s.counts, me), s.counts[own]);
    case Collective::all_gather:
      parts(s.counts, from_start);
      return bad;
    case Collective::all_to_all:
      parts(column(s, me, n), [&](int from) { return offset(row(s, from, n), me); });
      return bad;
    case Collective::gather:
      if (me == s.root) parts(s.counts, from_start);
      return bad;
    case Collective::scatter:
      return values.wrong(p.out.data(), s.root, offset(s.counts, me), s.counts[own]);
    case Collective::send_recv:
      return values.wrong(p.out.data(), (me + n - s.shift) % n, 0, total);
    case Collective::barrier:
      return 0;
  }
  return 0;
}

// In all the ways there are.
void Player::wait(Pending& p) {
  for (const WorkPtr& work : p.works) {
    switch (whims_.below(4)) {
      case 0:
        while (!work->test()) std::this_thread::yield();
        break;
      case 1: {
        auto done = std::make_shared<std::atomic<bool>>(false);
        work->on_done([done] { *done = true; });
        while (!*done) std::this_thread::sleep_for(std::chrono::microseconds(20));
        break;
      }
      case 2:
        while (!work->wait_for(std::chrono::milliseconds(1))) {
        }
        break;
      default:
        break;
    }
    work->wait();
  }
}

void Player::finish_one() {
  const auto at = static_cast<std::ptrdiff_t>(whims_.below(pending_.size()));
  const std::unique_ptr<Pending> p = std::move(pending_[static_cast<std::size_t>(at)]);
  pending_.erase(pending_.begin() + at);
  const auto fail = [&](const std::string& what) {
    throw std::runtime_error(
        fmt::format("rank {}, step {} ({}): {}", groups_[0]->rank(), p->number, to_string(p->step), what));
  };
  try {
    wait(*p);
  } catch (const Error& e) {
    if (p->step.kind != Step::Kind::disagree || e.code() != ErrorCode::mismatch) fail(e.what());
    for (const std::byte b : p->out)
      if (b != std::byte{0x5a}) fail("ranks disagreed, and the output was written");
    return;
  }
  if (p->step.kind == Step::Kind::disagree) fail("ranks disagreed, and nobody said so");
  if (const std::size_t bad = wrong(*p); bad > 0) fail(fmt::format("{} wrong elements", bad));
}

void Player::pause() {
  const std::uint64_t whim = whims_.below(200);
  if (whim == 0) std::this_thread::sleep_for(std::chrono::microseconds(whims_.below(2000)));
  if (whim < 20) std::this_thread::yield();
}

}  // namespace talweg::soak
