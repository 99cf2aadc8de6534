#include "protocol/bounded/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/bounded/world_parts.h"

namespace talweg::protocol {

namespace {

constexpr std::uint16_t kReceiverNode = 500;
constexpr std::size_t kGuardBytes = 16;
constexpr std::byte kGuardedByte{0xa5};
constexpr std::byte kBefore{0x5a};  // what is in an output before anything comes

template <std::size_t N, typename T>
T one_of(Random& random, const T (&values)[N]) {
  return values[random.below(N)];
}

}  // namespace

BoundedWorld::BoundedWorld(std::uint64_t seed, BoundedMutation mutation)
    : seed_(seed), mutation_(mutation), random_(seed) {
  plan();
}

BoundedWorld::~BoundedWorld() = default;

void BoundedWorld::plan() {
  loss_ = one_of(random_, {0.0, 0.0, 0.01, 0.05, 0.2, 0.5, 0.9});
  control_loss_ = one_of(random_, {loss_, loss_, 0.0, 0.5});
  into_burst_ = random_.below(3) == 0 ? 0.01 : 0;
  repeat_ = random_.below(2) == 0 ? 0 : 0.1;
  old_ = random_.below(2) == 0 ? 0 : 0.05;
  sealed_ = random_.below(4) == 0;
  damage_ = sealed_ ? 0.05 : 0;
  keep_ = random_.below(3) == 0;
  alike_ = random_.below(3) == 0;
  delay_ns_ = 5'000 + static_cast<std::int64_t>(random_.below(50'000));
  jitter_ns_ = one_of<4, std::int64_t>(random_, {0, 5'000, 50'000, 1'000'000});
  times_.gap_ns = one_of<3, std::int64_t>(random_, {20'000, 200'000, 1'500'000});
  times_.linger_ns = one_of<3, std::int64_t>(random_, {0, 100'000, 3'000'000});
  times_.round = {2'000'000, 200'000, 20'000'000};
  bounds_.tensor_ppm = one_of<5, std::uint32_t>(random_, {0, 0, 10'000, 100'000, 300'000});
  bounds_.sender_ppm = bounds_.tensor_ppm / one_of<3, std::uint32_t>(random_, {1, 1, 4});
  bounds_.iteration_ppm = bounds_.tensor_ppm / one_of<3, std::uint32_t>(random_, {1, 1, 4});
  bounds_.burst = 1 + static_cast<std::uint32_t>(random_.below(4));
  first_iteration_ = random_.below(4) == 0 ? 0xfffffffe : static_cast<std::uint32_t>(random_.below(1000));
  iterations_ = 2 + static_cast<std::uint32_t>(random_.below(4));
  if (bounds_.tensor_ppm == 0 && loss_ > 0) hit(BoundedMark::exact);
  receiver_ = std::make_unique<BoundedReceiver>(bounds_, times_, keep_ ? LossFill::keep : LossFill::zero);
  const std::size_t nodes = one_of<5, std::size_t>(random_, {1, 2, 4, 7, 15});
  for (std::size_t n = 0; n < nodes; ++n) {
    auto node = std::make_unique<Node>();
    node->number = n;
    node->id = static_cast<std::uint16_t>(n * 3);
    node->sender = std::make_unique<BoundedSender>(node->id, kReceiverNode, times_);
    const wire::DatagramSuite suite{wire::DatagramProtection::checksum, {}};
    const wire::DatagramScope up{1, 1, node->id, kReceiverNode}, down{1, 1, kReceiverNode, node->id};
    node->up_seal = std::make_unique<wire::DatagramSealer>(wire::Secret{}, up, suite);
    node->up_open = std::make_unique<wire::DatagramOpener>(wire::Secret{}, up, suite);
    node->down_seal = std::make_unique<wire::DatagramSealer>(wire::Secret{}, down, suite);
    node->down_open = std::make_unique<wire::DatagramOpener>(wire::Secret{}, down, suite);
    node->pace_ns = one_of<3, std::int64_t>(random_, {500, 3'000, 30'000});
    nodes_.push_back(std::move(node));
    const std::size_t tensors = 1 + random_.below(3);
    for (std::size_t t = 0; t < tensors; ++t) plan_stream(*nodes_.back(), t);
  }
  const bool mortal = random_.below(6) == 0;
  deadline_ns_ = mortal ? 2'000'000'000 : 120'000'000'000;
  // Where a deadline is near, what lives must make it.
  if (mortal) {
    loss_ = std::min(loss_, 0.05);
    control_loss_ = std::min(control_loss_, 0.05);
    into_burst_ = 0;
    dies_ = random_.below(nodes + 1);
    dies_in_ = static_cast<std::uint32_t>(random_.below(iterations_));
    late_ = *dies_ < nodes && random_.below(3) == 0;
  }
}

void BoundedWorld::plan_stream(Node& node, std::size_t number) {
  auto s = std::make_unique<Stream>();
  s->number = streams_.size();
  s->node = &node;
  s->shape.tensor = static_cast<std::uint32_t>(number * 7 + 1);
  s->shape.stride = static_cast<std::uint16_t>(4 * (1 + random_.below(16)));
  std::uint64_t packets =
      random_.below(8) == 0 ? random_.below(2) : 1 + random_.below(loss_ > 0.8 ? 20 : 120);
  if (nodes_.size() < 3 && random_.below(12) == 0 && loss_ <= 0.2) {
    s->shape.stride = 4;
    packets = wire::kHoleWindow + 1 + random_.below(300);
  }
  s->shape.bytes = packets * s->shape.stride;
  if (packets > 0) s->shape.bytes -= 4 * random_.below(s->shape.stride / 4);
  // Of the same shape as the first sender's: what is taken for another's then fits.
  if (alike_ && node.number > 0 && number < nodes_.front()->streams.size())
    s->shape = streams_[nodes_.front()->streams[number]]->shape;
  packets = s->shape.packets();
  if (packets == 0) hit(BoundedMark::empty);
  if (packets == 1) hit(BoundedMark::one_packet);
  for (std::uint32_t i = 0; i < iterations_; ++i) {
    std::vector<std::byte> in(s->shape.bytes);
    for (std::size_t e = 0; e < in.size() / 4; ++e) {
      const auto value = static_cast<std::uint32_t>(random_.next()) | 1U;  // never zero, unlike what is lost
      std::memcpy(in.data() + e * 4, &value, 4);
    }
    s->inputs.push_back(std::move(in));
  }
  s->missing.resize(iterations_);
  s->classes.priority = static_cast<std::uint8_t>(1 + random_.below(7));
  s->classified = random_.below(2) == 0;
  s->classes.must = s->classified && random_.below(2) == 0;
  s->at_sender = node.sender->add(s->shape);
  if (receiver_->add(node.id, s->shape) != s->number) problem("streams are numbered in another way");
  node.streams.push_back(s->number);
  node.bytes += s->shape.bytes;
  streams_.push_back(std::move(s));
}

void BoundedWorld::after(std::int64_t delay_ns, std::function<void()> event) {
  events_.emplace(std::pair(now_ns_ + delay_ns, events_made_++), std::move(event));
}

void BoundedWorld::problem(std::string text) {
  if (problems_.size() < 5) problems_.push_back(std::move(text));
}

// --- iterations ---

void BoundedWorld::begin_stream(std::size_t number) {
  Stream& s = *streams_[number];
  if (late_ && s.node->number == *dies_ && s.iteration == dies_in_ && !s.waited) {
    s.waited = true;
    return after(2 * deadline_ns_, [this, number] { begin_stream(number); });
  }
  if (s.node->dead || s.iteration >= iterations_ || (over_ && !s.waited)) return;
  s.idle = false;
  if (s.classified) {
    s.important.reset(s.shape.packets());
    for (std::uint32_t i = 0; i < s.shape.packets(); ++i)
      if (random_.below(3) == 0) s.important.add(i);
    s.classes.important = &s.important;
    if (s.classes.must && !s.important.empty()) hit(BoundedMark::must_deliver);
  }
  s.named.clear();
  s.stopped = false;
  s.node->sender->begin(s.at_sender, iteration(s.iteration), s.inputs[s.iteration].data(), s.classes,
                        now_ns_ + deadline_ns_, now_ns_);
}

void BoundedWorld::begin_iteration() {
  if (receiver_dead_) return;
  receiver_->begin(iteration(at_));
  if (iteration(at_) < first_iteration_) hit(BoundedMark::wrapped);
  open_ = streams_.size();
  for (const auto& s : streams_) {
    s->ended = false;
    s->out.assign(s->shape.bytes + 2 * kGuardBytes, kGuardedByte);
    std::fill_n(s->out.begin() + kGuardBytes, s->shape.bytes, kBefore);
    after(static_cast<std::int64_t>(random_.below(500'000)), [this, n = s->number] {
      if (!receiver_dead_)
        receiver_->expect(n, streams_[n]->out.data() + kGuardBytes, now_ns_ + deadline_ns_, now_ns_);
    });
  }
  if (dies_ && !late_ && at_ == dies_in_)
    after(static_cast<std::int64_t>(random_.below(1'000'000)), [this] {
      if (*dies_ < nodes_.size())
        nodes_[*dies_]->dead = true;
      else
        receiver_dead_ = true;
    });
}

void BoundedWorld::on_ended_at_receiver(std::size_t number) {
  Stream& s = *streams_[number];
  if (s.ended) return problem("a transfer has ended twice");
  s.ended = true;
  --open_;
  const BoundedInflow& in = receiver_->stream(number);
  if (in.failure()) {
    const std::string& text = in.failure()->text;
    if (!s.node->dead && !s.waited) problem("failed at the receiver: " + text);
    const std::string node = fmt::format("rank {}", s.node->id);
    if (text.find(node) == std::string::npos || text.find("tensor") == std::string::npos)
      problem("a failure that names nobody: " + text);
    hit(BoundedMark::sender_died);
    over_ = true;  // this iteration is the last one
  } else {
    check_delivered(s);
    s.missing[at_] = in.missing();
  }
  if (open_ > 0) return;
  check_iteration();
  if (++at_ < iterations_ && !over_) begin_iteration();
}

void BoundedWorld::on_ended_at_sender(Node& node, std::size_t at_sender) {
  Stream& s = *streams_[node.streams[at_sender]];
  s.idle = true;
  const BoundedOutflow& out = node.sender->stream(at_sender);
  if (out.failure()) {
    const std::string& text = out.failure()->text;
    const bool too_late = dies_ && s.iteration > dies_in_;  // nobody expects it any more
    if (!receiver_dead_ && !too_late && out.failure()->code != ErrorCode::peer_failed)
      problem("failed: " + text);
    if (text.find(fmt::format("rank {}", kReceiverNode)) == std::string::npos)
      problem("a failure that names nobody: " + text);
    if (receiver_dead_) hit(BoundedMark::receiver_died);
    if (out.failure()->code == ErrorCode::peer_failed) hit(BoundedMark::gave_up);
    return;
  }
  if (s.shape.packets() > 0 && (!s.missing[s.iteration] || *s.missing[s.iteration] != out.lost()))
    problem(fmt::format("tensor {} of node {}: its sender believes that {} packets were lost", s.shape.tensor,
                        node.id, out.lost().count()));
  ++s.iteration;
  after(static_cast<std::int64_t>(random_.below(300'000)), [this, n = s.number] { begin_stream(n); });
}

// --- the way ---

void BoundedWorld::send_from(Node& node, BoundedSender::What what) {
  Message m;
  m.payload.resize(2048);
  if (!node.sender->next(now_ns_, m.header, m.payload.data(), what)) return;
  m.payload.resize(m.header.length);
  m.header.sender = node.id;
  check_sent(node, m);
  const bool data = m.header.type == static_cast<std::uint8_t>(wire::BoundedType::data);
  if (data && old_packets_.size() < 200 && random_.below(4) == 0) old_packets_.emplace_back(node.number, m);
  carry(node, true, std::move(m), data);
  if (!old_packets_.empty() && random_.uniform() < old_) {
    auto& [whose, old] = old_packets_[random_.below(old_packets_.size())];
    if (old.header.own32 != iteration(at_)) hit(BoundedMark::old_packet);
    carry(*nodes_[whose], true, old, true);
  }
}

void BoundedWorld::carry(Node& node, bool up, Message message, bool data) {
  message.order = ++sent_;
  if (burst_left_ == 0 && random_.uniform() < into_burst_)
    burst_left_ = 2 + static_cast<unsigned>(random_.below(30));
  if (burst_left_ > 0) {
    --burst_left_;
    return hit(BoundedMark::in_burst);
  }
  if (random_.uniform() < (data ? loss_ : control_loss_))
    return hit(data ? BoundedMark::lost : BoundedMark::control_lost);
  if (sealed_) {
    std::vector<std::byte> datagram(wire::kDatagramHeaderBytes + message.payload.size() + 16);
    wire::DatagramSealer& sealer = up ? *node.up_seal : *node.down_seal;
    datagram.resize(sealer.seal(message.header, message.payload.data(), datagram.data()));
    message.payload = std::move(datagram);
    if (random_.uniform() < damage_)
      message.payload[random_.below(message.payload.size())] ^=
          static_cast<std::byte>(1 + random_.below(255));
  }
  const bool twice = random_.uniform() < repeat_;
  if (twice) hit(BoundedMark::repeated);
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    const auto extra = jitter_ns_ > 0 ? static_cast<std::int64_t>(random_.below(jitter_ns_)) : 0;
    after(delay_ns_ + extra, [this, &node, up, message] { arrive(node, up, message); });
  }
}

void BoundedWorld::arrive(Node& node, bool up, Message message) {
  if (up ? receiver_dead_ : node.dead) return;
  if (sealed_) {
    wire::DatagramHeader header;
    const auto why = (up ? *node.up_open : *node.down_open).open(message.payload, header);
    if (why != wire::DatagramRefusal::none) {
      if (why != wire::DatagramRefusal::replayed && why != wire::DatagramRefusal::stale)
        hit(BoundedMark::damaged);
      return;
    }
    message.header = header;
    message.payload.resize(wire::kDatagramHeaderBytes + header.length);
    message.payload.erase(message.payload.begin(), message.payload.begin() + wire::kDatagramHeaderBytes);
  }
  if (up) {
    if (message.order < node.newest_up) hit(BoundedMark::overtaken);
    node.newest_up = std::max(node.newest_up, message.order);
  }
  if (mutation_ != BoundedMutation::none && !mutate(node, up, message)) return;
  if (up) {
    if (!receiver_->on(message.header, message.payload, now_ns_)) problem("the receiver refused a message");
  } else {
    remember_holes(node, message);
    if (!node.sender->on(message.header, message.payload, now_ns_)) problem("a sender refused a message");
  }
}

// What the sender knows from here on: which holes it was told of, and whether it was stopped.
void BoundedWorld::remember_holes(Node& node, const Message& message) {
  wire::BoundedReport r;
  if (decode(message.header, message.payload, r) != nullptr) return problem("a report that none can read");
  for (const std::size_t number : node.streams) {
    Stream& s = *streams_[number];
    if (s.shape.tensor != r.tensor || message.header.own32 != iteration(s.iteration)) continue;
    if (r.first > 0) hit(BoundedMark::window);
    if (r.type == wire::BoundedType::stop) {
      s.stopped = true;
      continue;
    }
    for (std::uint32_t i = 0; i < r.window(); ++i)
      if (r.is_missing(i)) ++s.named[r.first + i];
  }
}

void BoundedWorld::check_sent(Node& node, const Message& message) {
  wire::BoundedData d;
  if (message.header.type != static_cast<std::uint8_t>(wire::BoundedType::data)) {
    if (message.header.service != wire::kControlClass) problem("control of another class");
    return;
  }
  if (const char* const why = decode(message.header, message.payload, d); why != nullptr)
    return problem(fmt::format("a sender says what none may: {}", why));
  for (const std::size_t number : node.streams) {
    Stream& s = *streams_[number];
    if (s.shape.tensor != d.tensor) continue;
    if (s.stopped) problem("data were sent after a stop had come");
    if (d.again && s.named[d.packet]-- == 0) problem("a packet was sent again that nobody had asked for");
    if (!d.again) ++s.sent_once;
    const bool droppable = (message.header.service & wire::kDroppable) != 0;
    if (droppable && (d.again || s.classes.important == nullptr || s.important.has(d.packet)))
      problem("a packet that is needed may be dropped");
  }
}

// --- what may happen next ---

// True while there is anything that can still happen.
bool BoundedWorld::pump() {
  for (bool more = true; more;) {
    more = false;
    if (!receiver_dead_) {
      receiver_->on_time(now_ns_);
      Message m;
      m.payload.resize(wire::kMostReportBytes);
      std::uint16_t to = 0;
      std::size_t said = 0;
      while (receiver_->next(now_ns_, to, m.header, m.payload.data())) {
        if (++said > 10 * streams_.size()) {
          problem("control has no end");
          return false;
        }
        Message copy = m;
        copy.payload.resize(m.header.length);
        copy.header.sender = kReceiverNode;
        carry(*nodes_[to / 3U], false, std::move(copy), false);
      }
      while (const auto s = receiver_->take_ended()) {
        on_ended_at_receiver(*s);
        more = true;
      }
    }
    for (const auto& node : nodes_) {
      if (node->dead) continue;
      node->sender->on_time(now_ns_);
      for (std::size_t asked = 0; node->sender->next_time_ns() == 0; ++asked) {
        if (asked > 10 * node->streams.size()) {
          problem("control waits and does not leave");
          return false;
        }
        send_from(*node, BoundedSender::What::control);
      }
      if (node->sender->has_data() && node->tick_ns <= now_ns_) {
        send_from(*node, BoundedSender::What::all);
        node->tick_ns = now_ns_ + node->pace_ns;
      }
      while (const auto s = node->sender->take_ended()) on_ended_at_sender(*node, *s);
    }
  }
  std::int64_t at = receiver_dead_ ? kNeverNs : receiver_->next_time_ns();
  for (const auto& node : nodes_) {
    if (node->dead) continue;
    at = std::min(at, node->sender->next_time_ns());
    if (node->sender->has_data()) at = std::min(at, node->tick_ns);
  }
  if (!events_.empty()) at = std::min(at, events_.begin()->first.first);
  if (at == kNeverNs) return false;
  now_ns_ = std::max(now_ns_, at);
  while (!events_.empty() && events_.begin()->first.first <= now_ns_) {
    const auto event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    event();
  }
  return true;
}

void BoundedWorld::run() {
  try {
    begin_iteration();
    for (const auto& s : streams_)
      after(static_cast<std::int64_t>(random_.below(500'000)), [this, n = s->number] { begin_stream(n); });
    constexpr std::uint64_t kMostSteps = 3'000'000;
    std::uint64_t steps = 0;
    while (pump() && problems_.empty())
      if (++steps > kMostSteps) problem("it does not come to an end");
    check_end();
  } catch (const std::exception& e) {
    problem(fmt::format("an exception: {}", e.what()));
  }
  count();
}

std::string BoundedWorld::describe() const {
  return fmt::format(
      "seed {}: {} senders, {} streams, {} iterations from {}, loss {} (control {}), bursts {}, repeated {}, "
      "old {}, "
      "delay {} + {} ns, gap {}, linger {}, bounds {} {} {} x {}{}{}{}",
      seed_, nodes_.size(), streams_.size(), iterations_, first_iteration_, loss_, control_loss_, into_burst_,
      repeat_, old_, delay_ns_, jitter_ns_, times_.gap_ns, times_.linger_ns, bounds_.tensor_ppm,
      bounds_.sender_ppm, bounds_.iteration_ppm, bounds_.burst, sealed_ ? ", sealed" : "",
      keep_ ? ", keeps" : "",
      dies_ ? fmt::format(", {} {} in {}", *dies_, late_ ? "is late" : "dies", dies_in_) : "");
}

// --- what must hold ---

void BoundedWorld::check_delivered(Stream& s) {
  const BoundedInflow& in = receiver_->stream(s.number);
  const PacketSet& missing = in.missing();
  const std::string where =
      fmt::format("tensor {} of node {}, iteration {}", s.shape.tensor, s.node->id, in.iteration());
  const std::vector<std::byte>& sent = s.inputs[at_];
  std::uint64_t lost = 0;
  for (std::uint32_t p = 0; p < s.shape.packets(); ++p) {
    const std::size_t length =
        std::min<std::size_t>(s.shape.stride, sent.size() - std::size_t{p} * s.shape.stride);
    const std::byte* const out = s.out.data() + kGuardBytes + std::size_t{p} * s.shape.stride;
    if (missing.has(p)) {
      lost += length;
      const std::byte filled = keep_ ? kBefore : std::byte{0};
      if (!std::all_of(out, out + length, [filled](std::byte b) { return b == filled; }))
        problem(fmt::format("{}: packet {} is missing and was written to", where, p));
      if (s.classes.must && s.important.has(p))
        problem(fmt::format("{}: packet {} is missing and must not be", where, p));
      if (keep_) hit(BoundedMark::kept);
    } else if (std::memcmp(out, sent.data() + std::size_t{p} * s.shape.stride, length) != 0) {
      problem(fmt::format("{}: packet {} is not what was sent", where, p));
    }
  }
  if (lost != in.missing_bytes()) problem(where + ": the missing bytes are counted in another way");
  if (lost * kMillion > s.shape.bytes * bounds_.tensor_ppm)
    problem(fmt::format("{}: {} of {} bytes are missing", where, lost, s.shape.bytes));
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (s.out[i] != kGuardedByte || s.out[s.out.size() - 1 - i] != kGuardedByte)
      problem(where + ": memory beside the output was written to");
  s.node->lost_bytes += lost;
}

// The bounds of the iteration, and of each sender over all iterations up to here.
void BoundedWorld::check_iteration() {
  std::uint64_t lost = 0, bytes = 0;
  for (const auto& s : streams_) {
    bytes += s->shape.bytes;
    if (s->missing[at_]) {
      for (std::uint32_t p = s->missing[at_]->next(0); p < s->shape.packets();
           p = s->missing[at_]->next(p + 1))
        lost += s->shape.length(p);
    }
  }
  if (lost * kMillion > bytes * bounds_.iteration_ppm)
    problem(fmt::format("iteration {}: {} of {} bytes are missing", iteration(at_), lost, bytes));
  for (const auto& node : nodes_)
    if (node->lost_bytes * kMillion > node->bytes * bounds_.sender_ppm * (at_ + 1))
      problem(fmt::format("node {}: {} bytes are missing in {} iterations of {}", node->id, node->lost_bytes,
                          at_ + 1, node->bytes));
}

void BoundedWorld::check_end() {
  if (!problems_.empty()) return;
  for (const auto& s : streams_) {
    if (!s->node->dead && !s->idle) problem("a sender's transfer has not ended");
    if (!receiver_dead_ && !s->ended) problem("a receiver's transfer has not ended");
    if (!over_ && !receiver_dead_ && !s->node->dead && s->iteration != iterations_)
      problem("a stream has stopped early");
    const BoundedInflow& in = receiver_->stream(s->number);
    if (in.counters().malformed > 0) problem("something honest was taken for malformed");
    const BoundedOutflow& out = s->node->sender->stream(s->at_sender);
    if (out.counters().malformed > 0) problem("something honest was taken for malformed");
    if (out.counters().packets != s->sent_once) problem("packets are counted in another way");
  }
  if (!over_ && !receiver_dead_ && at_ != iterations_) problem("the receiver has stopped early");
  if (dies_ && *dies_ == nodes_.size() && !receiver_dead_) problem("the receiver lives");
}

void BoundedWorld::count() {
  for (const auto& s : streams_) {
    const InflowCounters& in = receiver_->stream(s->number).counters();
    hit(BoundedMark::stale, in.stale);
    hit(BoundedMark::early, in.early);
    hit(BoundedMark::known_packet, in.repeated);
    hit(BoundedMark::rounds_in_vain, in.in_vain);
    hit(BoundedMark::stop_again, in.stops_again);
    hit(BoundedMark::stop_unasked, in.stops_unasked);
    hit(BoundedMark::complete, in.complete);
    hit(BoundedMark::at_gap, in.at_gap);
    hit(BoundedMark::at_linger, in.at_linger);
    hit(BoundedMark::at_probe, in.at_probe);
    hit(BoundedMark::sender_bound, in.held_by_sender);
    hit(BoundedMark::iteration_bound, in.held_by_iteration);
    const OutflowCounters& out = s->node->sender->stream(s->at_sender).counters();
    hit(BoundedMark::again, out.again);
    hit(BoundedMark::must_again, out.must_again);
    hit(BoundedMark::probe, out.probes);
    hit(BoundedMark::probe_in_vain, out.in_vain);
    hit(BoundedMark::spared, out.spared);
    hit(BoundedMark::early_holes, out.early_holes);
    hit(BoundedMark::old_report, out.old_reports);
    hit(BoundedMark::part_of_stop, out.parts_of_stops);
    hit(BoundedMark::dropped_class, out.droppable);
  }
}

}  // namespace talweg::protocol
