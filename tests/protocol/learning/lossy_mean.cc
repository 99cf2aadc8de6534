#include "protocol/learning/lossy_mean.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/fail.h"

namespace talweg::learning {

namespace {

using protocol::BoundedShape;
using protocol::BoundedTimes;
using protocol::LossBounds;

constexpr std::uint16_t kServer = kWorkers;
constexpr std::int64_t kMostOfStepNs = 60'000'000'000;
constexpr wire::DatagramScope kScope{1, 1, 0, kServer};
constexpr wire::DatagramSuite kSuite{wire::DatagramProtection::checksum};

// Where losses are even the network loses a little more than may be missing, so that the bound decides.
constexpr double kMoreThanBound = 1.25;

std::uint32_t ppm(double part) {
  return static_cast<std::uint32_t>(std::min(0.99, part) * protocol::kMillion);
}

// Of one gradient a hundredth is less than a packet: so more may be missing of one of them, and in the course
// of iterations a hundredth of all that a worker sends.
LossBounds bounds_of(const Loss& loss, const BoundedShape& shape) {
  constexpr std::uint32_t kMostBurst = 16;
  if (loss.drops == Drops::none) return {};
  if (loss.drops == Drops::evenly)
    return {ppm(2 * loss.part + 0.15), ppm(loss.part), ppm(loss.part + 0.1), kMostBurst};
  const std::uint32_t part =
      ppm(static_cast<double>(loss.packets) * shape.stride / static_cast<double>(shape.bytes)) + 1;
  return {part, part, part, 1};
}

// The packets with the largest norms.
protocol::PacketSet largest(const std::vector<float>& gradient, GradientSize size, std::uint32_t packets) {
  std::vector<std::pair<double, std::uint32_t>> squares(size.packets());
  for (std::uint32_t i = 0; i < squares.size(); ++i) squares[i].second = i;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    squares[i / size.packet_floats].first +=
        static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  std::ranges::sort(squares, std::greater{});
  protocol::PacketSet largest(size.packets());
  for (std::uint32_t i = 0; i < packets; ++i) largest.add(squares[i].second);
  return largest;
}

std::byte* raw(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

struct LossyMean::Worker {
  Worker(std::uint16_t number, GradientSize size, const BoundedShape& shape)
      : push(number, kServer, BoundedTimes{}),
        answer(kServer, number, BoundedTimes{}),
        pull({}, BoundedTimes{}),
        important(shape, DataType::f32),
        feedback(shape, DataType::f32),
        arrived(size.values),
        largest(size.packets()) {
    push.add(shape);
    answer.add(shape);
    pull.add(kServer, shape);
  }
  protocol::BoundedSender push, answer;  // to the server; the server's to this worker
  protocol::BoundedReceiver pull;        // with bounds of 0
  protocol::ImportantPackets important;
  protocol::ErrorFeedback feedback;
  std::vector<float> arrived;  // of this worker's, at the server
  protocol::PacketSet largest;
  std::uint32_t left = 0;  // packets, for the first time in this step
};

LossyMean::LossyMean(const Loss& loss, std::uint64_t seed, GradientSize size)
    : loss_(loss),
      size_(size),
      shape_{1, size.values * sizeof(float), static_cast<std::uint16_t>(size.packet_floats * sizeof(float))},
      random_(seed, 7),
      flips_(seed, 8),
      receiver_(bounds_of(loss, shape_), BoundedTimes{}),
      sum_(shape_, DataType::f32),
      mean_(size.values),
      sealer_({}, kScope, kSuite),
      opener_({}, kScope, kSuite) {
  payload_.resize(std::max<std::size_t>(wire::kMostReportBytes, wire::kBoundedHeadBytes + shape_.stride));
  datagram_.resize(wire::kDatagramHeaderBytes + payload_.size() + trailer_bytes(kSuite.protection));
  for (std::uint16_t w = 0; w < kWorkers; ++w) {
    receiver_.add(w, shape_);
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>(w, size_, shape_));
    up_.push_back({worker.push, receiver_, w, kServer});
    down_.push_back({worker.answer, worker.pull, kServer, w});
  }
}

LossyMean::~LossyMean() = default;

void LossyMean::step(std::vector<std::vector<float>>& gradients) {
  ++iteration_;
  push(gradients);
  pull(gradients);
}

void LossyMean::push(std::vector<std::vector<float>>& gradients) {
  receiver_.begin(iteration_);
  for (std::size_t w = 0; w < kWorkers; ++w) {
    Worker& worker = *workers_[w];
    if (loss_.residual) worker.feedback.add_to(raw(gradients[w]));
    protocol::TransferClasses classes;
    if (loss_.drops == Drops::smallest) {
      // A half more, as the part is rounded down to packets.
      classes.important = &worker.important.of(raw(gradients[w]), (loss_.packets + 0.5) / size_.packets());
      classes.must = true;
    }
    if (loss_.drops == Drops::largest) worker.largest = largest(gradients[w], size_, loss_.packets);
    worker.left = 0;
    receiver_.expect(w, raw(worker.arrived), now_ns_ + kMostOfStepNs, now_ns_);
    worker.push.begin(0, iteration_, raw(gradients[w]), classes, now_ns_ + kMostOfStepNs, now_ns_);
  }
  carry(up_, [this](const Way& way, const wire::DatagramHeader& header, std::span<std::byte> payload) {
    return loses(way.from, header, payload) || flip(header, payload);
  });
  sum_.begin(raw(mean_));
  for (std::size_t w = 0; w < kWorkers; ++w) {
    sum_.add(raw(workers_[w]->arrived), receiver_.stream(w).missing());
    lost_bytes_ += receiver_.stream(w).missing_bytes();
    if (loss_.residual) workers_[w]->feedback.remember(raw(gradients[w]), workers_[w]->push.stream(0).lost());
  }
  sum_.finish(loss_.scale, kWorkers);
}

void LossyMean::pull(std::vector<std::vector<float>>& gradients) {
  for (std::size_t w = 0; w < kWorkers; ++w) {
    Worker& worker = *workers_[w];
    worker.pull.begin(iteration_);
    worker.pull.expect(0, raw(gradients[w]), now_ns_ + kMostOfStepNs, now_ns_);
    worker.answer.begin(0, iteration_, raw(mean_), {}, now_ns_ + kMostOfStepNs, now_ns_);
  }
  const double part = loss_.drops == Drops::none ? 0 : kPullLoss;
  carry(down_, [&](const Way&, const wire::DatagramHeader&, std::span<std::byte>) {
    return random_.uniform() < part;
  });
}

// What there is to send, to the other end, or not; false: there was nothing.
template <class Loses>
bool LossyMean::move(std::vector<Way>& ways, const Loses& loses) {
  bool moved = false;
  wire::DatagramHeader header;
  for (Way& way : ways)
    while (way.sender.next(now_ns_, header, payload_.data())) {
      moved = true;
      header.sender = way.from;
      const std::span<std::byte> payload(payload_.data(), header.length);
      if (!loses(way, header, payload)) way.receiver.on(header, payload, now_ns_);
    }
  std::uint16_t to = 0;
  for (Way& way : ways)
    while (way.receiver.next(now_ns_, to, header, payload_.data())) {
      moved = true;
      // One receiver has all ways up; each one down has a receiver of its own.
      Way& back = &ways == &up_ ? ways[to] : way;
      header.sender = back.to;
      back.sender.on(header, {payload_.data(), header.length}, now_ns_);
    }
  return moved;
}

// Until each sender knows what its receiver has ended without.
template <class Loses>
void LossyMean::carry(std::vector<Way>& ways, const Loses& loses) {
  while (std::ranges::any_of(ways, [](const Way& way) { return way.sender.stream(0).open(); })) {
    if (move(ways, loses)) continue;
    now_ns_ = protocol::kNeverNs;
    for (const Way& way : ways)
      now_ns_ = std::min({now_ns_, way.sender.next_time_ns(), way.receiver.next_time_ns()});
    for (Way& way : ways) {
      way.sender.on_time(now_ns_);
      way.receiver.on_time(now_ns_);
    }
  }
  for (Way& way : ways) {
    if (const auto& failure = way.sender.stream(0).failure()) throw Error(failure->code, failure->text);
    while (way.sender.take_ended()) {
    }
    while (way.receiver.take_ended()) {
    }
  }
}

// Control always arrives.
bool LossyMean::loses(std::uint16_t from, const wire::DatagramHeader& header,
                      std::span<const std::byte> payload) {
  wire::BoundedData data;
  if (decode(header, payload, data) != nullptr) return false;
  if (loss_.drops == Drops::evenly) return random_.uniform() < kMoreThanBound * loss_.part;
  if (data.again) return false;
  Worker& worker = *workers_[from];
  const std::uint32_t before = worker.left++;
  const bool droppable = (header.service & wire::kDroppable) != 0;
  switch (loss_.drops) {
    case Drops::smallest:
      return droppable;
    case Drops::largest:
      return worker.largest.has(data.packet);
    case Drops::last_to_leave:
      return before >= size_.packets() - loss_.packets;
    case Drops::last_of_tensor:
      return data.packet >= size_.packets() - loss_.packets;
    default:
      return false;
  }
}

// True: the datagram is refused, which is as if it had been lost.
bool LossyMean::flip(const wire::DatagramHeader& header, std::span<std::byte> payload) {
  wire::BoundedData data;
  if (loss_.flipped == 0 || decode(header, payload, data) != nullptr || flips_.uniform() >= loss_.flipped)
    return false;
  const auto turn = [&](std::span<std::byte> bytes) {
    const std::uint64_t bit = flips_.below(bytes.size() * 8);
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  };
  if (!loss_.checked) {
    turn(payload.subspan(wire::kBoundedHeadBytes));
    return false;
  }
  wire::DatagramHeader sealed = header, opened;
  const std::span<std::byte> datagram(datagram_.data(),
                                      sealer_.seal(sealed, payload.data(), datagram_.data()));
  turn(datagram);
  if (opener_.open(datagram, opened) != wire::DatagramRefusal::none) return true;
  std::memcpy(payload.data(), datagram.data() + wire::kDatagramHeaderBytes, payload.size());
  return false;
}

double LossyMean::lost() const {
  return static_cast<double>(lost_bytes_) /
         (static_cast<double>(kWorkers) * static_cast<double>(shape_.bytes) * iteration_);
}

std::uint64_t LossyMean::packets_again() const {
  std::uint64_t again = 0;
  for (const auto& w : workers_) again += w->push.stream(0).counters().again;
  return again;
}

}  // namespace talweg::learning
