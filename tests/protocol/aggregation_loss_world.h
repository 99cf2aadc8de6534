// Sums at a switch of which a bounded part may be lost, in virtual time, over a network that loses single
// datagrams and bursts of them, repeats, delays and overtakes, with a worker that stops for a while; all from
// a seed. Values are whole numbers, so that every sum can be held against what went in.
//
//   AggregationLossWorld world(AggregationLossWorld::drawn(seed));
//   world.run();
//   world.problems()          // empty: every promise was kept
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "protocol/aggregation/result_group.h"
#include "protocol/aggregation/switch.h"
#include "protocol/aggregation/worker.h"

namespace talweg::protocol {

struct AggregationLossOptions {
  std::uint64_t seed = 1;
  std::uint16_t workers = 4;
  std::uint16_t slots = 4;
  std::uint8_t columns = 2;
  std::uint16_t block = 4;
  std::size_t count = 400;  // elements
  std::uint32_t operations = 6;
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  std::uint32_t ppm = 100'000;
  bool tolerant = true;  // the job
  bool ordered = false;
  bool residual = true;
  bool in_place = false;
  std::int64_t linger_ns = 60'000;  // 0: learnt
  double loss = 0;                  // of datagrams, each way
  double burst = 0;                 // that one begins, of so many datagrams of a worker's way:
  std::uint64_t burst_length = 8;
  double repeat = 0;
  std::int64_t jitter_ns = 0;
  double result_rate = 0;    // of the job; 0: none
  std::int64_t stop_ns = 0;  // worker 0 does nothing for so long, once in each operation
  // All workers join a multicast group: once they have heard a probe, results to all leave once, by a way
  // that all have in common, before each has its own. Worker 1 hears nothing of it from this operation on; 0:
  // it never joins. Until this one, when the group brings it all again.
  bool multicast = false;
  std::uint32_t deaf_from = 0xffffffff, hears_from = 0xffffffff;
  double brought = 0;  // of results to all by the group: somebody brings worker 1 a copy by its own way
  ResultGroupTimes times = {};
  bool traced = false;
};

class AggregationLossWorld {
 public:
  static AggregationLossOptions drawn(std::uint64_t seed);

  explicit AggregationLossWorld(const AggregationLossOptions& options);
  ~AggregationLossWorld();
  void run();

  const std::vector<std::string>& problems() const { return problems_; }
  // Datagrams in the order in which they were sent: when, from and to whom, and all bytes.
  const std::vector<std::string>& trace() const { return trace_; }
  const SwitchCounters& counters() const { return *box_.counters(1); }
  const WorkerCounters& worker(std::size_t number) const;
  const ResultGroup& group() const { return group_; }
  // Of results that have left the switch, to one and to all; and when the last one was sent.
  double result_bytes() const { return result_bytes_; }
  std::int64_t last_result_ns() const { return last_result_ns_; }

  // For all operations: vectors as they were given, as they came out of each (of all workers alike).
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }

 private:
  struct Member;
  void start(Member& member);
  void arm(Member& member);
  void look(Member& member);
  void on_box_time();
  void arm_box();
  void perform(std::span<const SwitchAction> actions);
  void bring(Member& member, const wire::DatagramHeader& header, const std::vector<std::byte>& bytes,
             std::uint64_t number, bool by_group);
  void bring_all(const wire::DatagramHeader& header, const std::vector<std::byte>& bytes);
  void hear(Member& member, const wire::DatagramHeader& header, const std::vector<std::byte>& bytes,
            std::uint64_t number, bool by_group);
  bool deaf(const Member& member) const;
  void say(const Member& member, const wire::SwitchHears& word);
  void on_group_time();
  bool all_over() const;
  void record(const wire::DatagramHeader& header, std::span<const std::byte> payload);
  void check(Member& member);
  void check_all();
  void check_codes();
  void contribute(std::uint32_t operation, std::size_t i, double part);
  void trace(const std::string& way, const std::vector<std::byte>& payload);
  void carry(std::size_t way, std::function<void()> arrival);
  void after(std::int64_t delay_ns, std::function<void()> event);
  void problem(std::string text);
  float value(std::size_t worker, std::uint32_t operation, std::size_t i) const;
  std::uint64_t blocks() const { return (options_.count + options_.block - 1) / options_.block; }

  const AggregationLossOptions options_;
  Random random_;
  AggregationSwitch box_;
  ResultGroup group_;
  std::int64_t group_armed_ns_ = -1;
  std::uint64_t to_all_ = 0;  // datagrams so far, each with a number of its own
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::uint64_t> bursts_;  // by way: datagrams that are still to be lost
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;
  std::int64_t now_ns_ = 0, box_armed_ns_ = 0;
  std::uint64_t made_ = 0;
  double result_bytes_ = 0;
  std::int64_t last_result_ns_ = 0;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint16_t>> absent_;  // by sum and block
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::byte>> said_;        // as absent_
  std::vector<std::vector<float>> outputs_;
  std::vector<std::vector<double>> contributed_;  // as outputs_, by what workers' residuals say
  std::vector<std::string> trace_, problems_;
};

}  // namespace talweg::protocol
