// FlowTrial: one rank's part of a set of flows that run at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "talweg/group.h"

namespace talweg::steer {

// A flow between ranks, in messages of `message_bytes`.
struct RankFlow {
  int from = 0;
  int to = 0;
  std::size_t message_bytes = 0;
};

class FlowTrial {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kWindow = 6;  // messages of a flow in flight
  // Of one host's flows out, in one trial: more teaches nothing.
  static constexpr std::int64_t kMostBytes = 64 << 20;

  FlowTrial(Group& group, const std::vector<RankFlow>& flows, std::chrono::nanoseconds duration);

  // Every rank calls it at the same time, also those without a flow. Payload rates in bit/s by flow, of those
  // that this rank receives; 0 for others. When a call fails, the group is aborted before that is thrown.
  std::vector<double> run();
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Posted {
    WorkPtr work;
    std::shared_ptr<std::atomic<std::int64_t>> done_ns;  // 0: in flight
    std::size_t slot = 0;                                // of an Incoming's buffer
  };
  struct Incoming {
    std::size_t flow = 0;
    RankFlow what;
    std::vector<std::byte> buffer;
    std::deque<Posted> posted;
    std::vector<double> arrivals;  // seconds since the start
    bool last_seen = false;
  };
  struct Outgoing {
    RankFlow what;
    std::vector<std::byte> data, last;
    std::deque<Posted> posted;
    bool ended = false;
  };

  void post(Incoming& in, std::size_t slot);
  void post(Outgoing& out, bool last);
  static Posted watched(WorkPtr work);
  void receive(Incoming& in);
  void send(Outgoing& out);
  void exchange();
  double rate(const Incoming& in) const;
  void wait_for_all();
  double seconds_since_start(std::int64_t ns) const;

  Group& group_;
  const std::size_t flows_;
  const std::chrono::nanoseconds duration_;
  std::vector<Incoming> in_;
  std::vector<Outgoing> out_;
  Clock::time_point start_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace talweg::steer
