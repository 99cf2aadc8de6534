#include "group/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace talweg::group {

namespace {
// Looks at the rings before the core is offered to others: some 50 us, longer than ranks that run are apart,
// because an answer that comes during a system call waits for its end. Not done where ranks share cores.
constexpr int kBusyLooks = 1000;
// After that, yields for this long before sleeping: a wake-up costs some 50 us on a virtual machine.
constexpr std::int64_t kYieldNs = 2'000'000;
// With ranks on other hosts it is the kernel that has work to do before anything arrives, and a sleeper that
// is woken gets a core sooner than one that keeps giving it up.
constexpr std::int64_t kRemoteYieldNs = 50'000;
constexpr auto kNoRoomPause = std::chrono::microseconds(20);
// A caller that said it would wait, and does not come for so long, has broken its word.
constexpr auto kTakeOver = std::chrono::milliseconds(100);
constexpr int kLetIn = 50;           // tries to let a waiting thread have the lock
constexpr int kDeadlineEvery = 256;  // looks between two looks at the clock
// Before a call begins: no rank can have given it up sooner; and more than what may have come for it.
constexpr std::int64_t kShortestDeadlineNs = 1'000'000;
constexpr int kMostLooks = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

int milliseconds_until(std::int64_t when_ns) {
  constexpr std::int64_t kMost = 1000;
  const std::int64_t left = (when_ns - live::now_ns()) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kMost));
}
}  // namespace

// How long a driver has been idle, and what to do about it.
class World::Patience {
 public:
  enum class Verdict { look_again, yield, sleep };
  Patience(bool crowded, std::int64_t yield_ns) : crowded_(crowded), yield_ns_(yield_ns) {}
  void reset() {
    looks_ = 0;
    since_ns_ = 0;
  }
  Verdict lost() {
    ++looks_;
    if (!crowded_ && looks_ < kBusyLooks) return Verdict::look_again;
    const std::int64_t now = live::now_ns();
    if (since_ns_ == 0) since_ns_ = now;
    return now - since_ns_ < yield_ns_ ? Verdict::yield : Verdict::sleep;
  }
  int looks() const { return looks_; }

 private:
  const bool crowded_;
  const std::int64_t yield_ns_;
  int looks_ = 0;
  std::int64_t since_ns_ = 0;
};

World::World(int rank, live::Mesh mesh, const live::LinkOptions& options, observe::ObserverOptions seeing)
    : address_(mesh.address),
      encrypts_(mesh.encrypted),
      engine_(rank, std::move(mesh), options, *this),
      observer_(std::move(seeing)),
      crowded_(!engine_.all_local() ||
               engine_.local_ranks() > static_cast<int>(std::thread::hardware_concurrency())) {
  progress_ = std::thread([this] { progress_loop(); });
}

World::~World() {
  {
    const auto guard = lock();
    stop_ = true;
    idle_.notify_all();
    engine_.wake();
  }
  progress_.join();
  engine_.say_goodbye();
  if (observe::Metrics* metrics = observer_.metrics())
    write_down(observer_.options().metrics_file, metrics->text(sight(live::now_ns())));
}

std::unique_lock<std::mutex> World::lock() {
  if (inherited())
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("this group was joined by process {}, of which this process ({}) is a forked child: it "
                    "must join a group of its own",
                    mark_.made_in(), ::getpid()));
  std::unique_lock guard(mutex_, std::try_to_lock);
  if (guard) return guard;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  guard.lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  return guard;
}

void World::started(std::int64_t deadline_ns, std::int64_t called_ns) {
  // Nobody has looked at the network since the last call ended, and others may have given this one up. With
  // their data all there, it would be done here before their failure is read.
  if (in_flight_ == 0 && called_ns - last_called_ns_ > kShortestDeadlineNs)
    for (int i = 0; i < kMostLooks && engine_.poll(true); ++i) {
    }
  last_called_ns_ = called_ns;
  ++in_flight_;
  ++calls_;
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
}

void World::completed(WorkImpl& work, const protocol::Outcome& outcome) {
  --in_flight_;
  ended_ = true;
  if (auto kept = work.complete(outcome); kept->has_callbacks()) due_.push_back(std::move(kept));
}

void World::submit(std::unique_lock<std::mutex> lock, bool will_wait) {
  engine_.flush();
  if (asleep_) engine_.wake();  // whoever sleeps does not know the new deadline
  // Whoever waits drives; but a call that is done may still have frames on their way out.
  const bool left_alone = in_flight_ > 0 ? !will_wait : engine_.unsent();
  expected_ = in_flight_ > 0 && will_wait;
  if ((left_alone || (expected_ && forgotten_)) && progress_idle_ && waiters_ == 0 && !driving_)
    idle_.notify_one();
  run_callbacks(lock);
}

void World::rouse() {
  engine_.flush();
  if (asleep_) engine_.wake();
  const bool left_alone = (in_flight_ > 0 && !expected_) || engine_.unsent() || !due_.empty();
  if (left_alone && progress_idle_ && waiters_ == 0 && !driving_) idle_.notify_one();
}

void World::run_callbacks(std::unique_lock<std::mutex>& lock) {
  while (!due_.empty()) {
    std::vector<std::shared_ptr<WorkImpl>> due;
    due.swap(due_);
    lock.unlock();
    for (const auto& work : due) work->run_callbacks();
    due.clear();
    lock.lock();
    if (due_.empty()) due_.swap(due);  // keeps its memory
  }
}

void World::check_deadlines() {
  const std::int64_t now = live::now_ns();
  if (now >= next_pulse_ns_) {
    next_pulse_ns_ = now + engine_.check_hosts();
  }
  if (now < next_deadline_ns_) return;
  next_deadline_ns_ = std::numeric_limits<std::int64_t>::max();
  for (const auto& [id, group] : groups_) {
    next_deadline_ns_ = std::min(next_deadline_ns_, group->on_time(now));
  }
  engine_.flush();
}

// One round of driving. The lock is held on entry and on return.
void World::step(std::unique_lock<std::mutex>& lock, Patience& patience, std::int64_t limit_ns) {
  // A mutex is not fair: a driver that only ever lets go of it for a moment would shut others out.
  for (int i = 0; i < kLetIn && wanting_.load(std::memory_order_relaxed) > 0; ++i) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  const bool any = engine_.poll();
  if (!any && patience.looks() % kDeadlineEvery == 0) check_deadlines();
  if (std::exchange(ended_, false)) {
    run_callbacks(lock);
    if (waiters_ > 0) handover_.notify_all();
    return;
  }
  if (any) {
    patience.reset();
    return;
  }
  switch (patience.lost()) {
    case Patience::Verdict::look_again:
      lock.unlock();
      relax();
      lock.lock();
      return;
    case Patience::Verdict::yield:
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      return;
    case Patience::Verdict::sleep:
      break;
  }
  check_deadlines();
  if (ended_) return;
  if (!engine_.prepare_sleep()) {  // something has come, or there is no room for what must go: nobody rings
                                   // for that
    lock.unlock();
    std::this_thread::sleep_for(kNoRoomPause);
    lock.lock();
    return;
  }
  asleep_ = true;
  const int ms = milliseconds_until(std::min({next_deadline_ns_, next_pulse_ns_, limit_ns}));
  lock.unlock();
  engine_.sleep(ms);
  lock.lock();
  asleep_ = false;
  patience.reset();
}

bool World::wait(const WorkImpl& work, std::optional<std::chrono::milliseconds> limit) {
  const std::int64_t limit_ns = limit ? live::now_ns() + std::chrono::nanoseconds(*limit).count()
                                      : std::numeric_limits<std::int64_t>::max();
  auto guard = lock();
  ++waiters_;
  expected_ = false;
  Patience patience(crowded_, engine_.all_local() ? kYieldNs : kRemoteYieldNs);
  while (!work.done()) {
    if (limit && live::now_ns() >= limit_ns) break;
    if (driving_) {
      if (asleep_) engine_.wake();  // the progress thread makes way
      handover_.wait_for(guard, std::chrono::milliseconds(milliseconds_until(limit_ns)));
      continue;
    }
    driving_ = true;
    do {
      step(guard, patience, limit_ns);
    } while (!work.done() && (!limit || live::now_ns() < limit_ns));
    driving_ = false;
  }
  --waiters_;
  run_callbacks(guard);
  if (waiters_ > 0) handover_.notify_all();
  if (waiters_ == 0 && progress_idle_ && (in_flight_ > 0 || engine_.unsent())) idle_.notify_one();
  return work.done();
}

void World::progress() {
  auto guard = lock();
  if (driving_) return;
  driving_ = true;
  engine_.poll();
  check_deadlines();
  driving_ = false;
  run_callbacks(guard);
  if (waiters_ > 0) handover_.notify_all();
}

void World::progress_loop() {
  auto guard = lock();
  // In the background: never keep a core from the computation.
  Patience patience(true, kRemoteYieldNs);
  std::uint64_t seen = 0;
  while (!stop_) {
    if (observer_.needs_looks()) look(guard);
    run_callbacks(guard);
    if ((in_flight_ == 0 && !engine_.unsent()) || waiters_ > 0 || driving_ || expected_) {
      progress_idle_ = true;
      // Nobody wakes this thread for each call of those who wait themselves: while there are calls, it looks.
      forgotten_ = calls_ == seen && !expected_;
      seen = calls_;
      if (forgotten_ && observer_.needs_looks()) {
        idle_.wait_for(guard, std::chrono::nanoseconds(observe::Observer::kLookNs));
      } else if (forgotten_) {
        idle_.wait(guard);
      } else if (idle_.wait_for(guard, kTakeOver) == std::cv_status::timeout && calls_ == seen) {
        expected_ = false;
      }
      progress_idle_ = forgotten_ = false;
      patience.reset();
      continue;
    }
    driving_ = true;
    step(guard, patience, std::numeric_limits<std::int64_t>::max());
    driving_ = false;
    run_callbacks(guard);
    if (waiters_ > 0) handover_.notify_all();
  }
}

// Frames mostly come for the group that the last one was for.
Tenant* World::find(std::uint32_t id) {
  if (last_ != nullptr && last_id_ == id) return last_;
  const auto it = groups_.find(id);
  if (it == groups_.end()) return nullptr;
  last_id_ = id;
  return last_ = it->second;
}

live::Place World::place(int peer, const wire::Header& header) {
  Tenant* const group = find(header.group);
  return group == nullptr ? live::Place{} : group->place(peer, header);
}

void World::on_frame(int peer, const wire::Header& header, const std::byte* payload) {
  if (header.type == wire::FrameType::wake) return;
  if (header.type == wire::FrameType::ping || header.type == wire::FrameType::pong) {
    on_clock_frame(peer, header);
    return;
  }
  // A group that this rank has left, or never was in: nothing waits for its frames.
  if (Tenant* const group = find(header.group)) group->on_frame(peer, header, payload);
}

void World::on_sent(std::uint32_t id, const protocol::Token& token) {
  if (Tenant* const group = find(id)) group->on_sent(id, token);
}

void World::on_peer_gone(int peer, std::optional<ErrorCode> failure, const std::string& why) {
  for (const auto& [id, group] : groups_) group->on_peer_gone(peer, failure, why);
}

}  // namespace talweg::group
