// One call in flight.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "observe/recorder.h"
#include "protocol/outbox.h"
#include "talweg/group.h"

namespace talweg::group {

class World;

// What those who watch a group keep with a call: see GroupImpl::note_start.
struct Watched {
  observe::CallNote::Kind kind = observe::CallNote::Kind::collective;
  Collective op = Collective::barrier;
  bool stalled = false;  // somebody has been warned
  std::int64_t bytes = 0;
  std::int64_t started_ns = 0;
  std::int64_t deadline_ns = 0;
  std::uint64_t ticket = 0;  // in the group's recorder
  std::uint64_t trace = 0;   // in the trace
};

class WorkImpl : public Work {
 public:
  explicit WorkImpl(const std::shared_ptr<World>& world) : world_(world) {}

  bool test() override;
  void wait() override;
  bool wait_for(std::chrono::milliseconds limit) override;
  std::exception_ptr error() override;
  void on_done(std::function<void()> callback) override;
  std::uint64_t sequence() const override { return sequence_; }
  int source_rank() const override { return done() && outcome_.ok ? outcome_.source : -1; }

  // Once it has ended well.
  protocol::SumWay way() const { return done() && outcome_.ok ? outcome_.way : protocol::SumWay::none; }

  bool done() const { return done_.load(std::memory_order_acquire); }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  Watched& watched() { return watched_; }
  // How long its data need, where they are sent at the paces of a plan (protocol/pacer.h).
  void set_paced(double seconds_needed) { paced_ = seconds_needed; }
  const std::optional<double>& paced() const { return paced_; }
  void keep(std::shared_ptr<WorkImpl> self) { in_flight_ = std::move(self); }

  // Under the world's lock. Returns what kept the work alive; its callbacks, if it has any, are due.
  std::shared_ptr<WorkImpl> complete(const protocol::Outcome& outcome);
  bool has_callbacks() const { return !callbacks_.empty(); }
  // Without the lock.
  void run_callbacks();

 private:
  void throw_if_failed() const;

  // Not an owner: the progress thread lets go of works, and a World must not end on its own thread. A World
  // that is gone has completed all its works.
  const std::weak_ptr<World> world_;
  std::uint64_t sequence_ = 0;
  Watched watched_;
  std::optional<double> paced_;
  std::shared_ptr<WorkImpl> in_flight_;
  protocol::Outcome outcome_;
  std::vector<std::function<void()>> callbacks_;
  std::atomic<bool> done_{false};
};

}  // namespace talweg::group
