// SwitchStream: a group's part in the sums of a switch (live/aggregation/switch_client.h), which joins, sums
// and joins again in a thread of its own. Nobody waits for it: while it has no connection the group does
// without (switch_streams.h). When it joins again: rejoining.h.
//
//   SwitchStream stream(wish, wish.at[0], {rank, size, "talweg-1f.."}, log, [&] { session looks again });
//   auto [sum, cost] = stream.line_up();                                    // as of SumStream
//
// Once all ranks have joined they measure it, in sums of their own, and take the mean: cost() is the same on
// all ranks, to the bit.
//
// Locks: `changed` is called without its own lock, in its own thread. Its own lock is taken under the World's
// lock, never the other way round.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "group/switch_wish.h"
#include "live/aggregation/switch_client.h"
#include "protocol/streaming/sum_stream.h"

namespace talweg::group {

// Why a switch makes no sums yet.
inline constexpr const char* kBeingJoined = "it is being joined";

class SwitchStream {
 public:
  struct Place {
    int rank = 0;
    int size = 1;
    std::string job;
    std::vector<std::uint64_t> switches = {};  // by rank, as of live::sit_down(); empty: all are at this one
    bool speaks_for_host = true;               // of what is the host's, once
    bool part = false;                         // of a group that is made of another one
    std::string name() const;                  // "job talweg-1f.. of 4 ranks", for people
  };
  // Seconds of a sum, as measured when this life began.
  struct Cost {
    double fixed = 0, per_byte = 0;  // of elements as they travel
    double per_coded = 0;            // the same of coded formats; 0: they are not measured
    double per_pair = 0;             // on any rank; 0: pairs are not to be had
    double per_short_row = 0;  // of kShortRow elements of four bytes, on any rank; 0: it is not measured
    std::size_t block = 0;     // elements
    std::size_t lanes = 1;     // among which blocks are dealt out
    std::uint32_t exact = 0;   // sums of which nothing may be missing, after those that measured
    // Of a vector of which so much is on any rank; infinity: not in this form.
    double seconds(std::size_t elements, wire::AggregationFormat format, protocol::SumForm form,
                   const protocol::Held& held) const;
    static constexpr std::size_t kShortRow = 8;
    // The same of rows of which so many are on any rank, as blocks or pairs.
    double seconds_of_rows(double rows, std::size_t width, wire::AggregationFormat format,
                           protocol::SumForm form) const;
  };
  struct Traffic {  // bytes of datagrams so far
    std::uint64_t sent = 0, received = 0;
    Traffic& operator+=(const Traffic& other) {
      sent += other.sent;
      received += other.received;
      return *this;
    }
  };
  // `at` is one of wish.at.
  SwitchStream(const SwitchWish& wish, const SwitchWish::At& at, Place place, const Logger& log,
               std::function<void()> changed);
  ~SwitchStream();
  // Has its thread end, which may be in `changed`, and waits for that. Sums in line have failed then.
  void halt();
  void stop();

  // A sum in line, null: there is no life now; and what that life costs.
  std::pair<std::shared_ptr<protocol::QueuedSum>, Cost> line_up();
  void go(protocol::QueuedSum& sum, const protocol::SumTask& task);
  void pass(protocol::QueuedSum& sum);
  void abandon(protocol::QueuedSum& sum);
  protocol::SumStream::Progress look(const protocol::QueuedSum& sum) const;

  std::optional<Cost> cost() const;  // empty: there is no life now
  // Changes whenever what cost() says does.
  std::uint64_t lives() const { return lives_.load(std::memory_order_acquire); }
  // "127.0.0.1:4711 (environment), 12 sums", or why there are none.
  std::string describe() const;
  static std::string describe(const SwitchWish& wish, const SwitchWish::At& at, std::uint64_t sums);
  Traffic traffic() const;

 private:
  std::unique_lock<std::mutex> lock() const;
  const char* what() const {
    return wish_.rows ? "sums of sparse tensors" : wish_.tolerant ? "bounded sums" : "sums";
  }
  void serve();
  void serve(live::SwitchClient& client);
  bool step(live::SwitchClient& client);
  void wait(const live::SwitchClient& client) const;
  // Nothing has come of the running sum for longer.
  bool is_silent(std::int64_t now, std::int64_t most_ns) const;
  // Throws Error then.
  void check_silence(const live::SwitchClient& client, std::int64_t now, std::int64_t most_ns) const;
  Cost tried(live::SwitchClient& client) const;
  Cost measure(live::SwitchClient& client) const;
  std::pair<double, std::size_t> measure_pairs(live::SwitchClient& client) const;
  std::pair<double, std::size_t> measure_rows(live::SwitchClient& client) const;
  void open(const live::SwitchClient& client, const Cost& cost);
  void end_life(const std::string& why);  // under the lock
  void lose(const std::string& why, bool fault, bool refused);
  void check_stopped() const;
  void wake() const;

  const SwitchWish wish_;
  const SwitchWish::At at_;
  const Place place_;
  const Logger log_;
  const std::function<void()> changed_;
  const FileDescriptor wake_;  // an eventfd: there is something to do
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> lives_{0};

  mutable std::mutex mutex_;
  mutable std::atomic<int> wanting_{0};  // threads but its own on their way into the lock
  std::condition_variable pause_;
  protocol::SumQueue queue_;
  std::shared_ptr<protocol::QueuedSum> running_;
  std::uint64_t results_ = 0;     // of the running sum, when there was the last one
  std::uint64_t again_ = 0;       // blocks that were sent again before it
  std::int64_t progress_ns_ = 0;  // and when
  std::int64_t silence_ns_ = 0;   // after which it is given up
  std::optional<Cost> cost_;
  std::uint64_t sums_ = 0;  // in all
  Traffic past_, traffic_;  // of clients that were before this one, and with it
  std::string why_not_ = kBeingJoined;
  bool said_ = false;  // that it is not there
  bool said_shortage_ = false;

  std::thread thread_;
};

}  // namespace talweg::group
