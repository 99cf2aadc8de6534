#include "protocol/bounded/exchange.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace talweg::protocol {

namespace {

// Datagrams before others get their turn: what is sent, and to one rank at a time, so that they leave in one
// piece.
constexpr int kMostSent = 256;
constexpr int kBurst = 16;
// Quarters of the lateness that has been seen, for which is waited.
constexpr std::int64_t kLater = 6;

}  // namespace

Exchange::Exchange(int self, const ExchangeOptions& options, std::size_t around,
                   std::span<const std::uint32_t> credits, ExchangeOutbox& outbox)
    : self_(self),
      options_(options),
      around_(around),
      outbox_(outbox),
      payload_(std::max({wire::kMostReportBytes, wire::kMostAckBytes,
                         wire::kBoundedHeadBytes + std::size_t{options.stride}})) {
  FlightOptions flight;
  flight.credit = credits[index(self)];
  flight.datagram = around_ + wire::kBoundedHeadBytes + options.stride;
  flight.packets = options.packets;
  flight.paths = options.paths;
  flight.rate = options.rate;
  flight.rate.queue_bytes = options.most_queue_bytes;
  for (std::size_t r = 0; r < credits.size(); ++r) {
    flights_.emplace_back();
    if (r == index(self)) continue;
    flight.other_credit = credits[r];
    flights_.back() = std::make_unique<Flight>(flight);
  }
}

// What `rank` sends of such a shard.
BoundedShape Exchange::sent_by(int rank, const BoundedShape& shape) const {
  if (std::ranges::find(options_.silent, rank) == options_.silent.end()) return shape;
  return {shape.tensor, 0, shape.stride};
}

std::size_t Exchange::add(std::span<const std::uint64_t> shard_bytes, DataType type) {
  auto t = std::make_unique<Tensor>(options_);
  const auto number = static_cast<std::uint32_t>(tensors_.size());
  std::uint64_t offset = 0;
  for (const std::uint64_t bytes : shard_bytes) {
    t->shapes.push_back({number, bytes, options_.stride});
    t->offsets.push_back(offset);
    t->important.emplace_back(t->shapes.back(), type);
    offset += bytes;
  }
  t->classes.resize(shard_bytes.size());
  for (int r = 0; r < static_cast<int>(flights_.size()); ++r) {
    t->senders.emplace_back();
    t->streams.push_back(0);
    if (r == self_) continue;
    const auto rank = static_cast<std::uint16_t>(r);
    t->senders.back() =
        std::make_unique<BoundedSender>(static_cast<std::uint16_t>(self_), rank, options_.times);
    t->senders.back()->add(sent_by(self_, t->shapes[index(r)]));
    t->streams.back() = t->receiver.add(rank, sent_by(r, t->shapes[index(self_)]));
  }
  if (const std::uint64_t needed = shard_bytes[index(self_)] * flights_.size(); needed > inbox_bytes_) {
    inbox_.reset();
    inbox_bytes_ = 0;
    inbox_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    inbox_bytes_ = needed;
  }
  tensors_.push_back(std::move(t));
  return number;
}

void Exchange::forget(std::size_t number) {
  if (number == current_) refuse("tensor {} cannot be forgotten: it was begun last", number);
  tensors_.at(number).reset();
}

const std::byte* Exchange::arrived(int rank) const {
  return inbox_.get() + index(rank) * tensor().shapes[index(self_)].bytes;
}

std::uint64_t Exchange::all_sent_again() const {
  std::uint64_t sum = 0;
  for (const auto& sender : tensor().senders)
    if (sender) sum += sender->stream(0).counters().again;
  return sum;
}

void Exchange::begin(std::size_t number, const std::byte* data, const ExchangeClasses& classes,
                     std::span<const MeasuredTransfer> told, std::int64_t deadline_ns, std::int64_t now) {
  current_ = number;
  Tensor& t = tensor();
  t.begun_ns = now;
  again_before_ = all_sent_again();
  if (t.iteration > 0) t.times.on_ended(told);
  t.last = {};
  t.exact = options_.warm_up && !t.times.is_warm();
  const bool may_lose = !t.exact && options_.bounds.tensor_ppm > 0;
  if (t.times.is_warm()) t.receiver.set_linger(t.times.linger_ns());
  t.receiver.begin(++t.iteration, t.exact);
  to_receive_ = to_settle_ = flights_.size() - 1;
  for (int r = 0; r < static_cast<int>(flights_.size()); ++r) {
    if (r == self_) continue;
    const std::uint64_t at = index(r) * t.shapes[index(self_)].bytes;
    if (const RoundTrip& trip = flights_[index(r)]->round_trip(); trip.known()) {
      t.receiver.assume_round(t.streams[index(r)], trip.smoothed_ns());
      t.senders[index(r)]->assume_round(0, trip.smoothed_ns());
    }
    t.receiver.expect(t.streams[index(r)], inbox_.get() + at, deadline_ns, now);
    const bool sends = t.senders[index(r)]->stream(0).shape().bytes > 0;
    const std::byte* const shard = sends ? data + t.offsets[index(r)] : nullptr;
    t.classes[index(r)] = {classes.priority, nullptr, may_lose && classes.must};
    if (sends && may_lose && classes.droppable > 0)
      t.classes[index(r)].important = &t.important[index(r)].of(shard, classes.droppable);
    t.senders[index(r)]->begin(0, t.iteration, shard, t.classes[index(r)], deadline_ns, now);
  }
  note_ends(now);  // shards of no bytes
  sent_to_ = to_settle_;
}

void Exchange::on(int from, const wire::DatagramHeader& header, std::span<const std::byte> payload,
                  bool marked, std::int64_t came_ns, std::int64_t now) {
  Flight& flight = *flights_[index(from)];
  const bool data = header.type == static_cast<std::uint8_t>(wire::BoundedType::data);
  if (data)
    flight.received(header.number, (header.flags & wire::kDatagramAsks) != 0, marked, came_ns, now);
  else
    flight.passed(header.number);
  if (data && !tensors_.empty())
    tensor().receiver.bear_lateness(tensor().streams[index(from)], kLater * flight.lateness_ns() / 4);
  if (header.type == static_cast<std::uint8_t>(wire::FlowType::acknowledgement))
    return flight.on_acknowledgement(payload, came_ns, now);
  if (tensors_.empty()) return;
  // What is about another tensor is of a call that is over.
  if (data || header.type == static_cast<std::uint8_t>(wire::BoundedType::probe))
    tensor().receiver.on(header, payload, now);
  else
    tensor().senders[index(from)]->on(header, payload, now);
}

void Exchange::end_of_batch() {
  for (const auto& flight : flights_)
    if (flight) flight->end_of_batch();
}

void Exchange::on_time(std::int64_t now) {
  Tensor& t = tensor();
  t.receiver.on_time(now);
  for (std::size_t r = 0; r < flights_.size(); ++r) {
    if (!flights_[r]) continue;
    t.senders[r]->on_time(now);
    flights_[r]->on_time(now);
  }
}

void Exchange::note_ends(std::int64_t now) {
  Tensor& t = tensor();
  const auto ended = [this](std::size_t& left, const std::optional<BoundedFailure>& failure) {
    --left;
    if (failure && !failure_) failure_ = failure;
  };
  const bool receiving = to_receive_ > 0;
  while (const auto s = t.receiver.take_ended()) ended(to_receive_, t.receiver.stream(*s).failure());
  for (const auto& sender : t.senders)
    while (sender && sender->take_ended()) ended(to_settle_, sender->stream(0).failure());
  if (!receiving || to_receive_ > 0 || failure_) return;
  std::uint64_t lost = 0, bytes = 0;
  for (std::size_t s = 0; s < t.receiver.streams(); ++s) {
    lost += t.receiver.stream(s).missing_bytes();
    bytes += t.receiver.stream(s).shape().bytes;
  }
  if (bytes == 0) return;
  t.last.took_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(1, now - t.begun_ns));
  t.last.lost_ppm = lost * kMillion / bytes;
}

// All others may send to a rank, however few it sends to itself.
void Exchange::share_queues() {
  const std::size_t others = flights_.size() - 1;
  const bool most_settled = sent_to_ == 0 || 2 * to_settle_ <= sent_to_;
  const std::size_t by =
      std::max<std::size_t>(1, most_settled && sent_to_ > 0 ? others * to_settle_ / sent_to_ : others);
  if (std::exchange(shared_by_, by) == by) return;
  const double most = options_.most_queue_bytes * static_cast<double>(others) / static_cast<double>(by);
  const double bytes = std::min(most, options_.queue_bytes / static_cast<double>(by));
  for (const auto& flight : flights_)
    if (flight) flight->set_queue(bytes);
}

bool Exchange::has_room(int rank) {
  blocked_ = blocked_ || !outbox_.has_room(rank);
  return !blocked_;
}

// What the outbox does not take waits where it is.
void Exchange::send(std::int64_t now) {
  blocked_ = false;
  share_queues();
  int budget = kMostSent;
  bool any = send_control(now);
  while (any && budget > 0) {
    any = false;
    // Each rank begins with the one behind it: they do not all send to the same one.
    for (int i = 1; i < ranks() && !blocked_; ++i) any = send_data((self_ + i) % ranks(), now, budget) || any;
  }
  blocked_ = !outbox_.flush();
  note_ends(now);
}

// False: there is no room for it.
bool Exchange::send_control(std::int64_t now) {
  wire::DatagramHeader header;
  std::uint16_t to = 0;
  // Any rank does to find out about room.
  const int any = self_ == 0 ? ranks() - 1 : 0;
  while (has_room(any) && tensor().receiver.next(now, to, header, payload_.data()))
    put_control(to, header, now);
  for (int r = 0; r < ranks(); ++r) {
    if (r == self_) continue;
    Flight& flight = *flights_[index(r)];
    if (has_room(r) && flight.acknowledgement_due(now)) {
      flight.acknowledge(now, header, payload_.data());
      put_control(r, header, now);
    }
    while (has_room(r) &&
           tensor().senders[index(r)]->next(now, header, payload_.data(), BoundedSender::What::control))
      put_control(r, header, now);
  }
  return !blocked_;
}

void Exchange::put_control(int rank, wire::DatagramHeader& header, std::int64_t now) {
  outbox_.put(rank, flights_[index(rank)]->control_path(now), header, payload_.data());
}

// True if anything has left.
bool Exchange::send_data(int rank, std::int64_t now, int& budget) {
  bool any = false;
  wire::DatagramHeader header;
  Flight& flight = *flights_[index(rank)];
  BoundedSender& sender = *tensor().senders[index(rank)];
  for (int i = 0; i < kBurst && budget > 0 && sender.has_data() && flight.allowed(now); ++i) {
    if (!has_room(rank) || !sender.next(now, header, payload_.data())) break;
    const std::size_t bytes = around_ + header.length;
    header.flags = !sender.has_data() || flight.fills(bytes) ? wire::kDatagramAsks : std::uint8_t{0};
    flight.sent(outbox_.put(rank, flight.path(), header, payload_.data()), bytes, now);
    while (has_room(rank) && flight.trial(now)) {
      header.flags = wire::kDatagramAsks;
      flight.sent(outbox_.put(rank, flight.path(), header, payload_.data()), bytes, now);
    }
    --budget;
    any = true;
  }
  return any;
}

std::int64_t Exchange::next_time_ns(std::int64_t now) const {
  const Tensor& t = tensor();
  std::int64_t at = t.receiver.next_time_ns();
  for (std::size_t r = 0; r < flights_.size(); ++r) {
    if (!flights_[r]) continue;
    at = std::min({at, t.senders[r]->next_time_ns(),
                   flights_[r]->next_time_ns(now, t.senders[r]->has_data() && !blocked_)});
  }
  return at;
}

}  // namespace talweg::protocol
