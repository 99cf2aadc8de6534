// FlowTrial: one rank's part of a set of flows that run at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "steer/arrivals.h"
#include "talweg/group.h"

namespace talweg::steer {

// A flow between ranks.
struct RankFlow {
  int from = 0;
  int to = 0;
  std::size_t first_bytes = 0;  // of its first messages
  double most = 0;              // bit/s that it may send; 0: whatever it can
};

class FlowTrial {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kWindow = 6;  // messages of a flow in flight
  // Of one host's flows out, in one trial: more teaches nothing.
  static constexpr std::int64_t kMostBytes = 64 << 20;

  FlowTrial(Group& group, const std::vector<RankFlow>& flows, std::chrono::nanoseconds duration);

  // Every rank calls it at the same time, also those without a flow. What TCP carried of each flow that this
  // rank receives, frame headers included, in bit/s by flow; 0 for others. When a call fails, the group is
  // aborted before that is thrown.
  std::vector<double> run();
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Posted {
    WorkPtr work;
    std::shared_ptr<std::atomic<std::int64_t>> done_ns;  // 0: in flight
    std::size_t bytes = 0;
    std::size_t slot = 0;  // of an Incoming's buffers
  };
  struct Incoming {
    Incoming(std::size_t number, const RankFlow& rank_flow)
        : flow(number), what(rank_flow), sizes(rank_flow.first_bytes), buffers(kWindow) {}
    std::size_t flow = 0;
    RankFlow what;
    MessageSizes sizes;
    std::vector<std::vector<std::byte>> buffers;
    std::deque<Posted> posted;
    std::vector<Arrival> arrivals;
    bool last_seen = false;
  };
  struct Outgoing {
    explicit Outgoing(const RankFlow& flow) : what(flow), sizes(flow.first_bytes) {}
    RankFlow what;
    MessageSizes sizes;
    std::deque<Posted> posted;
    std::deque<double> done;  // when the last kWindow left, in seconds since the start
    std::int64_t bytes = 0;
    bool ended = false;
  };

  void post(Incoming& in, std::size_t slot);
  void post(Outgoing& out, bool last);
  static Posted watched(WorkPtr work);
  bool may_send(const Outgoing& out) const;
  bool shall_end(const Outgoing& out) const;
  void receive(Incoming& in);
  void send(Outgoing& out);
  void exchange();
  void wait_for_all();
  double seconds_since_start(std::int64_t ns) const;
  double seconds() const;
  double duration() const { return std::chrono::duration<double>(duration_).count(); }

  Group& group_;
  const std::size_t flows_;
  const std::chrono::nanoseconds duration_;
  std::vector<Incoming> in_;
  std::vector<Outgoing> out_;
  const std::vector<std::byte> zeros_, last_;  // what is sent: the first byte says whether it is the end
  Clock::time_point start_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace talweg::steer
