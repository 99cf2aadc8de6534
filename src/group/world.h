// World: one process's connections to the other ranks, shared by the group that made them and the groups
// split from it.
//
// Whoever waits, drives: a thread in wait() polls the engine itself. At most one thread drives at a time;
// others that wait sleep until it hands over. When nobody waits but something is in flight, the progress
// thread drives. A driver that finds nothing to do spins briefly (another rank is usually only microseconds
// away), then yields its core to the ranks it waits for, then sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "group/work.h"
#include "live/engine.h"
#include "live/fork_mark.h"
#include "observe/observer.h"
#include "protocol/pacer.h"
#include "protocol/session/session.h"
#include "steer/background.h"

namespace talweg::group {

// A group that shares a World, as that sees it: peers are seats in the world. Called under the World's lock.
class Tenant : public live::FrameHandler {
 public:
  // Looks at the clock; returns when to look next.
  virtual std::int64_t on_time(std::int64_t now_ns) = 0;
  // The flight record's text; `reason`: why it is wanted.
  virtual std::string record(const std::string& reason) const = 0;
  // lag[r]: for how many seconds a call in flight here has waited for rank r of the joined group to start it.
  virtual void add_lag(std::vector<double>& lag, std::int64_t now_ns) const = 0;
  virtual void add_traffic(observe::SwitchTraffic& traffic) const = 0;
};

class World : public live::FrameHandler {
 public:
  World(int rank, live::Mesh mesh, const live::LinkOptions& options, observe::ObserverOptions seeing);
  ~World() override;

  // Throws Error{invalid_argument} in a process that was forked from the one that joined.
  std::unique_lock<std::mutex> lock();
  bool inherited() const { return mark_.inherited(); }
  // Where the other processes reach this one; empty when it is alone. And whether frames to other hosts are
  // encrypted.
  const std::string& address() const { return address_; }
  bool encrypts() const { return encrypts_; }

  // Under the lock:
  void add(std::uint32_t id, Tenant* group) { groups_[id] = group; }
  void remove(std::uint32_t id) {
    groups_.erase(id);
    last_ = nullptr;
  }
  bool knows(std::uint32_t id) const { return groups_.contains(id); }
  live::Engine& engine() { return engine_; }
  protocol::Pacer& pacer() { return pacer_; }  // by seats
  protocol::BufferPool& pool() { return pool_; }
  observe::Observer& observer() { return observer_; }
  // A search for plans may take minutes: whether plans are to follow the network is decided beside it.
  steer::Background& background() { return background_; }
  steer::Background& replanning() { return replanning_; }
  void ask_time(std::int64_t now_ns);
  // A call begins that was made at `called_ns`. What other ranks have said of it meanwhile is heard before.
  void started(std::int64_t deadline_ns, std::int64_t called_ns);
  std::size_t in_flight() const { return in_flight_; }
  // Somebody wants to look at the clock then.
  void look_at(std::int64_t when_ns) { next_deadline_ns_ = std::min(next_deadline_ns_, when_ns); }
  void completed(WorkImpl& work, const protocol::Outcome& outcome);

  // Sends what calls have produced, lets go of the lock, runs callbacks that are due. `will_wait`: the caller
  // drives.
  void submit(std::unique_lock<std::mutex> lock, bool will_wait);

  // Under the lock: something has happened that the driver does not poll for.
  void rouse();

  // Without the lock: drives until `work` is done. False when `limit` has passed before.
  bool wait(const WorkImpl& work, std::optional<std::chrono::milliseconds> limit);
  bool on_progress_thread() const { return std::this_thread::get_id() == progress_.get_id(); }
  // One look at the network.
  void progress();

  live::Place place(int peer, const wire::Header& header) override;
  void on_frame(int peer, const wire::Header& header, const std::byte* payload) override;
  void on_sent(std::uint32_t group, const protocol::Token& token) override;
  void on_peer_gone(int peer, std::optional<ErrorCode> failure, const std::string& why) override;

 private:
  class Patience;
  Tenant* find(std::uint32_t id);
  void step(std::unique_lock<std::mutex>& lock, Patience& patience, std::int64_t limit_ns);
  void check_deadlines();
  void run_callbacks(std::unique_lock<std::mutex>& lock);
  void progress_loop();
  // In world_observe.cc.
  void look(std::unique_lock<std::mutex>& lock);
  bool write_down(const std::string& path, const std::string& text) const;  // warns of what it cannot write
  void on_clock_frame(int peer, const wire::Header& header);
  observe::Sight sight(std::int64_t now_ns);

  const live::ForkMark mark_;
  const std::string address_;
  const bool encrypts_;
  std::mutex mutex_;
  std::atomic<int> wanting_{0};       // threads on their way into the lock: the driver lets them in
  std::condition_variable handover_;  // waiters that do not drive
  std::condition_variable idle_;      // the progress thread
  protocol::BufferPool pool_;
  std::unordered_map<std::uint32_t, Tenant*> groups_;
  Tenant* last_ = nullptr;  // that find() has found, and its number
  std::uint32_t last_id_ = 0;
  live::Engine engine_;
  protocol::Pacer pacer_{[this](int seat, double bytes_per_second) { engine_.pace(seat, bytes_per_second); }};
  observe::Observer observer_;
  std::int64_t next_look_ns_ = 0;
  const bool crowded_;                          // more ranks on this host than cores
  bool ended_ = false;                          // some call has, since the driver looked last
  std::vector<std::shared_ptr<WorkImpl>> due_;  // completed, callbacks not yet run
  std::vector<std::optional<std::string>> gone_;
  std::int64_t next_deadline_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t next_pulse_ns_ = 0;
  std::size_t in_flight_ = 0;
  std::int64_t last_called_ns_ = 0;
  std::uint64_t calls_ = 0;
  bool expected_ = false;   // the last caller said that it would wait: the progress thread leaves it to it
  bool forgotten_ = false;  // the progress thread sleeps without looking for calls now and then
  int waiters_ = 0;
  bool driving_ = false;
  bool asleep_ = false;  // the driver is in the kernel, without the lock
  bool progress_idle_ = false;
  bool stop_ = false;
  std::thread progress_;
  steer::Background background_, replanning_;
};

}  // namespace talweg::group
