#include "sim/bounded_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "base/at.h"
#include "base/fail.h"
#include "protocol/bounded/lossy_sum.h"
#include "protocol/bounded/packet_class.h"
#include "protocol/datagram/flow.h"
#include "sim/outage.h"
#include "wire/bounded.h"
#include "wire/replay_window.h"

namespace talweg::sim {

namespace {

constexpr double kMostLost = 0.5;
constexpr std::size_t kElement = 16;  // the largest there is: packets have a whole number of any
// What ranks tell each other before a call: as a group's do, of which only what they measured is read here.
constexpr std::size_t kWordsBytes = 56;
// Of a flow's two buffers: all of a rank's together have about this.
constexpr std::size_t kBufferBytes = std::size_t{4} << 20, kLeastBuffer = std::size_t{32} << 10;

constexpr double kMostMemory = 16.0 * (std::int64_t{1} << 30);
constexpr int kTurn = 16;  // datagrams to one rank before the next one's
// Datagrams of which protocol.
constexpr std::uint32_t kShards = 0, kSums = 1;

std::uint16_t stride_of(const TransportOptions& transport) {
  const std::size_t payload = largest_datagram_payload(transport);
  if (payload < std::max(wire::kMostReportBytes, wire::kMostAckBytes) + kElement)
    refuse("packets with {} bytes of payload have no room for what ranks tell each other",
           transport.payload_bytes);
  return static_cast<std::uint16_t>((payload - wire::kBoundedHeadBytes) / kElement * kElement);
}

// Of what one socket has room for, for each of the others.
std::uint32_t share_of(const BoundedSumsOptions& options, int ranks) {
  return static_cast<std::uint32_t>(options.window_bytes / static_cast<std::size_t>(std::max(1, ranks - 1)));
}

protocol::ExchangeOptions exchange_options(const BoundedSumsOptions& options,
                                           const TransportOptions& transport, int ranks) {
  protocol::ExchangeOptions how;
  how.bounds = protocol::bounds_of({options.p, options.p_sender, options.p_call});
  how.stride = stride_of(transport);
  how.packets = std::bit_ceil(2 * std::size_t{share_of(options, ranks)} / how.stride + 64);
  how.warm_up = options.warm_up;
  how.paths = options.paths;
  return how;
}

protocol::FlowOptions flow_options(const BoundedSumsOptions& options, const TransportOptions& transport,
                                   int ranks) {
  protocol::FlowOptions how;
  how.send_bytes = how.receive_bytes =
      std::max(kLeastBuffer, kBufferBytes / static_cast<std::size_t>(std::max(1, ranks - 1)));
  how.window = share_of(options, ranks);
  how.payload = largest_datagram_payload(transport);
  how.around = datagram_wire_bytes(0, transport);
  how.packets = std::bit_ceil(2 * how.send_bytes / how.payload + 64);
  how.paths = options.paths;
  return how;
}

// What so many later ones between two hosts have overtaken has been sent again since; where paths differ, one
// is overtaken by what all others bring meanwhile.
std::size_t overtaken_by(const BoundedSumsOptions& options, const TransportOptions& transport, int ranks) {
  const std::size_t once = 4 * std::size_t{share_of(options, ranks)} / stride_of(transport) + 64;
  return options.paths > 1 ? 4 * once : once;
}

// Of all flows' buffers, and of the datagrams that are kept until they have been overtaken.
double bytes_of_pairs(const BoundedSumsOptions& options, const TransportOptions& transport, int ranks) {
  const protocol::FlowOptions flow = flow_options(options, transport, ranks);
  const double pair = static_cast<double>(flow.send_bytes + flow.receive_bytes) +
                      static_cast<double>(overtaken_by(options, transport, ranks)) *
                          (static_cast<double>(flow.payload) + 200);
  return pair * ranks * ranks;
}

}  // namespace

class BoundedSums::RankHost : public DatagramHosts::Host, private protocol::ExchangeOutbox {
 public:
  RankHost(BoundedSums& sums, int rank, int node, int ranks, std::size_t overtaken)
      : Host(sums.hosts_, node, at(rank), overtaken),
        sums_(sums),
        exchange_(rank, exchange_options(sums.options_, sums.simulation_.transport().options(), ranks),
                  datagram_wire_bytes(0, sums.simulation_.transport().options()),
                  std::vector<std::uint32_t>(at(ranks), share_of(sums.options_, ranks)), *this),
        element_(size_of(sums.options_.type)) {
    auto options = flow_options(sums.options_, sums.simulation_.transport().options(), ranks);
    options.share = std::make_shared<protocol::QueueShare>();
    told_.resize(at(ranks));
    for (int r = 0; r < ranks; ++r) {
      peers_.push_back(r == rank ? nullptr : std::make_unique<Peer>(options));
      payload_.resize(std::max({payload_.size(), options.payload, exchange_.most_payload()}));
    }
  }

  // Sums of vectors of so many elements.
  void add(std::size_t count, std::uint8_t priority) {
    Shards& shards = shards_.emplace_back();
    shards.priority = priority;
    shards.counts = protocol::bounded_parts(count, peers_.size(), sums_.servers_);
    std::vector<std::uint64_t> bytes;
    std::size_t offset = 0;
    for (const std::size_t its : shards.counts) {
      shards.offsets.push_back(offset);
      offset += its;
      bytes.push_back(its * element_);
    }
    shards.tensor = exchange_.add(bytes, sums_.options_.type);
  }

  void start(std::size_t sum, const SumOperands& operands) {
    sum_ = sum;
    started_ = sums_.simulation_.now();
    deadline_ns_ = hosts().now_ns() + DatagramHosts::kPatienceNs;
    operands_ = operands;
    phase_ = Phase::agreeing;
    for (const auto& peer : peers_)
      if (peer) peer->read = peer->written = 0;
    told_[number()] = exchange_.last_transfer(shards_[sum_].tensor);
    std::memcpy(words_.data(), &told_[number()], sizeof told_[number()]);
    pump();
    rouse();
  }

  const protocol::Exchange& exchange() const { return exchange_; }
  void count_flows(BoundedLosses& losses) const {
    for (const auto& peer : peers_) {
      if (!peer) continue;
      losses.sums_again += (peer->flow.statistics().bytes_sent_again + payload_.size() - 1) / payload_.size();
      losses.timeouts += peer->flow.statistics().timeouts;
      losses.paths_left += peer->flow.paths().times_left();
    }
    for (int r = 0; r < exchange_.ranks(); ++r)
      if (peers_[at(r)]) {
        losses.timeouts += exchange_.flight(r).timeouts;
        losses.paths_left += exchange_.paths(r).times_left();
      }
  }

 private:
  enum class Phase : std::uint8_t { idle, agreeing, sharing, summed };
  struct Peer {
    explicit Peer(const protocol::FlowOptions& options) : flow(options) {}
    protocol::DatagramFlow flow;
    std::uint64_t numbers[2] = {0, 0};  // of the next datagram of each kind
    wire::ReplayWindow seen[2];
    // Of this call: bytes of the other one's words and sum, and of this one's.
    std::size_t read = 0, written = 0;
    std::array<std::byte, kWordsBytes> words{};  // the other one's
  };

  // ExchangeOutbox: what a simulated host sends is taken.
  bool has_room(int) override { return true; }
  std::uint64_t put(int rank, std::size_t path, wire::DatagramHeader& header,
                    const std::byte* payload) override {
    return send(rank, kShards, path, header, payload);
  }
  bool flush() override { return true; }

  std::uint64_t send(int rank, std::uint32_t kind, std::size_t path, wire::DatagramHeader& header,
                     const std::byte* payload) {
    ++sums_.losses_.datagrams;
    header.job = kind;
    header.sender = static_cast<std::uint16_t>(number());
    header.number = peers_[at(rank)]->numbers[kind]++;
    const auto on_the_way =
        sums_.options_.queues > 1
            ? header.service
            : static_cast<std::uint8_t>((header.service & wire::kDroppable) | wire::kOrdinary);
    post(*sums_.ranks_[at(rank)], make(header, {payload, header.length}), on_the_way, path);
    return header.number;
  }

  void take(const Host& from, const Message& message, const Arrival& arrival) override {
    Peer& peer = *peers_[from.number()];
    wire::ReplayWindow& seen = peer.seen[message.header.job];
    if (seen.look(message.header.number) != wire::DatagramRefusal::none) return;
    seen.accept(message.header.number);
    const std::int64_t now = hosts().now_ns();
    // Nobody reads the socket of shards before all ranks are known to be at the same call.
    const bool read = phase_ == Phase::sharing || phase_ == Phase::summed;
    if (message.header.job == kShards && !read) {
      if (unread_bytes_ + message.payload.size() > sums_.options_.window_bytes) return;
      unread_bytes_ += message.payload.size();
      unread_.push_back({static_cast<int>(from.number()), message, arrival});
    } else if (message.header.job == kShards)
      on_shard(static_cast<int>(from.number()), message, arrival);
    else
      peer.flow.on_datagram(message.header, message.payload, arrival.marked, now, now - arrival.came_ns);
  }
  struct Shard {
    int from = 0;
    Message message;
    Arrival arrival;
  };
  void on_shard(int from, const Message& message, const Arrival& arrival) {
    exchange_.on(from, message.header, message.payload, arrival.marked, arrival.came_ns, hosts().now_ns());
  }
  void end_of_batch() override {
    exchange_.end_of_batch();
    for (const auto& peer : peers_)
      if (peer) peer->flow.end_of_batch();
    pump();
  }
  std::int64_t next_time_ns() const override {
    const std::int64_t now = hosts().now_ns();
    std::int64_t next = shards_.empty() ? DatagramHosts::kNoTimeNs : exchange_.next_time_ns(now);
    for (const auto& peer : peers_)
      if (peer) next = std::min(next, peer->flow.next_time(now));
    return phase_ == Phase::idle ? next : std::min(next, deadline_ns_);
  }
  void on_time() override { pump(); }
  bool reduces() const override { return phase_ == Phase::sharing; }

  // All that can be done now.
  void pump() {
    const std::int64_t now = hosts().now_ns();
    write();
    read();
    if (phase_ == Phase::agreeing && all([](const Peer& p, std::size_t) { return p.read >= kWordsBytes; })) {
      protocol::ExchangeClasses classes = sums_.options_.classes;
      classes.priority = shards_[sum_].priority;
      exchange_.begin(shards_[sum_].tensor, operands_.in, classes, told_, deadline_ns_, now);
      for (const Shard& s : unread_) on_shard(s.from, s.message, s.arrival);
      unread_.clear();
      unread_bytes_ = 0;
      exchange_.end_of_batch();
      phase_ = Phase::sharing;
    }
    send_sums(now);  // words, before the first shard
    exchange_.on_time(now);
    exchange_.send(now);
    if (const auto& failure = exchange_.failure()) sums_.fail(*failure);
    if (phase_ != Phase::idle && now >= deadline_ns_)
      sums_.fail({ErrorCode::timeout, "an all_reduce with bounded loss had not ended after 20 minutes", 0});
    if (phase_ == Phase::sharing && exchange_.received()) {
      add_up();
      phase_ = Phase::summed;
    }
    write();
    send_sums(now);
    look();
  }

  // Of one rank's sum, to another one. Who sums nothing sends a byte where a group has an empty message, so
  // that whom it sends shards is there until it knows what was lost of them.
  std::size_t sum_bytes(std::size_t from, std::size_t to) const {
    const std::vector<std::size_t>& counts = shards_[sum_].counts;
    return counts[from] > 0 ? counts[from] * element_ : counts[to] > 0 ? 1 : 0;
  }

  // Words, and after them the sums of the others' shards.
  void read() {
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      if (!peers_[r]) continue;
      Peer& peer = *peers_[r];
      while (phase_ != Phase::idle && peer.read < kWordsBytes + sum_bytes(r, number())) {
        const auto bytes = peer.flow.readable(0);
        if (bytes.empty()) break;
        const bool words = peer.read < kWordsBytes;
        const std::size_t left = (words ? 0 : sum_bytes(r, number())) + kWordsBytes - peer.read;
        const std::size_t n = std::min(bytes.size(), left);
        if (words)
          std::memcpy(peer.words.data() + peer.read, bytes.data(), n);
        else if (shards_[sum_].counts[r] > 0)
          std::memcpy(operands_.out + shards_[sum_].offsets[r] * element_ + (peer.read - kWordsBytes),
                      bytes.data(), n);
        peer.flow.consumed(0, n);
        peer.read += n;
      }
      std::memcpy(&told_[r], peer.words.data(), sizeof told_[r]);
    }
  }

  // The words, and the sum to each rank once it is known what it has lost of what it was sent, as in a group.
  void write() {
    if (phase_ == Phase::idle) return;
    const bool sums = shards_[sum_].counts[number()] > 0;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      if (!peers_[r]) continue;
      Peer& peer = *peers_[r];
      if (peer.written < kWordsBytes)
        peer.written += peer.flow.write(0, std::span(words_).subspan(peer.written));
      if (peer.written < kWordsBytes || phase_ != Phase::summed || !exchange_.settled(static_cast<int>(r)))
        continue;
      const std::span<const std::byte> sum{
          sums ? operands_.out + shards_[sum_].offsets[number()] * element_ : words_.data(),
          sum_bytes(number(), r)};
      peer.written += peer.flow.write(0, sum.subspan(peer.written - kWordsBytes));
    }
  }

  // In turn, and each begins with the rank behind it, as Exchange does.
  void send_sums(std::int64_t now) {
    for (const auto& peer : peers_)
      if (peer) peer->flow.on_time(now);
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 1; i < peers_.size(); ++i) {
        const std::size_t r = (number() + i) % peers_.size();
        Peer& peer = *peers_[r];
        wire::DatagramHeader header;
        for (int n = 0; n < kTurn && peer.flow.next(peer.numbers[kSums], now, header, payload_.data()); ++n) {
          send(static_cast<int>(r), kSums, peer.flow.path(), header, payload_.data());
          any = true;
        }
      }
    }
  }

  // In the order of ranks, as in a group.
  void add_up() {
    const auto self = static_cast<int>(number());
    const std::size_t offset = shards_[sum_].offsets[number()] * element_;
    const protocol::BoundedShape& shape = exchange_.shape(self);
    const protocol::PacketSet nothing(shape.packets());
    protocol::LossySum adding(shape, sums_.options_.type);
    adding.begin(operands_.out + offset);
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      adding.add(r == self ? operands_.in + offset : exchange_.arrived(r),
                 r == self ? nothing : exchange_.missing(r));
      if (r == self || exchange_.exact()) continue;
      sums_.losses_.sent_bytes += shape.bytes;
      sums_.losses_.lost_bytes += exchange_.missing_bytes(r);
    }
    adding.finish(protocol::LossScale::none, static_cast<int>(peers_.size()));
  }

  // Of what this rank has sent, as their receivers have said.
  void count_important() {
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      if (!peers_[at(r)]) continue;
      const protocol::PacketSet& lost = exchange_.lost(r);
      const protocol::PacketSet* const important = exchange_.important(r);
      for (std::uint32_t i = lost.next(0); i < lost.size(); i = lost.next(i + 1))
        if (important == nullptr || important->has(i))
          sums_.losses_.lost_important_bytes += exchange_.shape(r).length(i);
    }
  }

  template <class Holds>
  bool all(Holds holds) const {
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (peers_[r] && !holds(*peers_[r], r)) return false;
    return true;
  }

  void look() {
    if (phase_ != Phase::summed || !exchange_.settled()) return;
    if (!all([&](const Peer& p, std::size_t r) {
          return p.written == kWordsBytes + sum_bytes(number(), r) &&
                 p.read == kWordsBytes + sum_bytes(r, number());
        }))
      return;
    phase_ = Phase::idle;
    sums_.losses_.packets_again += exchange_.sent_again();
    count_important();
    sums_.on_done(static_cast<int>(number()), started_);
  }

  BoundedSums& sums_;
  protocol::Exchange exchange_;
  const std::size_t element_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: this one
  struct Shards {
    std::vector<std::size_t> counts, offsets;  // by rank, in elements
    std::size_t tensor = 0;
    std::uint8_t priority = wire::kOrdinary;
  };
  std::vector<Shards> shards_;  // by sum
  std::size_t sum_ = 0;         // the one that was started last
  std::array<std::byte, kWordsBytes> words_{};
  std::vector<protocol::MeasuredTransfer> told_;  // by rank
  std::vector<Shard> unread_;                     // in the socket's buffer
  std::size_t unread_bytes_ = 0;
  SumOperands operands_;
  Phase phase_ = Phase::idle;
  Picoseconds started_ = 0;
  std::int64_t deadline_ns_ = 0;
  std::vector<std::byte> payload_;
};

void check_bounded_sums(const BoundedSumsOptions& options, const TransportOptions& transport) {
  if (!(options.p >= 0 && options.p <= kMostLost))
    refuse("a part of {:g} that may be lost: expected 0 to {:g}", options.p, kMostLost);
  if (const std::string why = protocol::complaint_about({options.p, options.p_sender, options.p_call},
                                                        "--may-lose-sender", "--may-lose-call");
      !why.empty())
    refuse("{}", why);
  if (options.type != DataType::f16 && options.type != DataType::bf16 && options.type != DataType::f32 &&
      options.type != DataType::f64)
    refuse("a sum of {} with bounded loss: expected f16, bf16, f32 or f64, of which a part may be missing",
           name(options.type));
  if (!(options.classes.droppable >= 0 && options.classes.droppable <= 1))
    refuse("a part of {:g} of the packets that may be dropped first: expected 0 to 1",
           options.classes.droppable);
  if (options.classes.must && options.classes.droppable <= 0)
    refuse("important packets that may not be missing where none is droppable: nothing could be lost");
  if (options.queues < 1 || options.queues > kMostQueues)
    refuse("{} queues for layers: expected 1 to {}, as control has one of eight", options.queues,
           kMostQueues);
  if (options.paths < 1 || options.paths > protocol::kMostPaths)
    refuse("{} paths from a rank to another one: expected 1 to {}", options.paths, protocol::kMostPaths);
  stride_of(transport);
}

BoundedSums::BoundedSums(Simulation& simulation, const BoundedSumsOptions& options)
    : simulation_(simulation),
      options_(options),
      hosts_(simulation, options.costs, options.port, simulation.transport().options().turns),
      calls_(simulation, [this](int rank, const SumOperands& o) { start(rank, sums_ - 1, o); }) {
  const TransportOptions& transport = simulation.transport().options();
  check_bounded_sums(options, transport);
  const int all = simulation.network().cluster().workers();
  if (std::ranges::any_of(options_.nodes, [&](int node) { return node < 0 || node >= all; }) ||
      std::set<int>(options_.nodes.begin(), options_.nodes.end()).size() != options_.nodes.size())
    refuse("sums with bounded loss: expected workers as ranks, each once");
  const int workers = options_.nodes.empty() ? all : static_cast<int>(options_.nodes.size());
  if (const double bytes = bytes_of_pairs(options, transport, workers); bytes > kMostMemory)
    refuse("sums with bounded loss of {} workers: expected fewer, for which {:.0f} GiB do", workers,
           kMostMemory / (1 << 30));
  servers_ = options_.servers;
  std::ranges::sort(servers_);
  if (const std::string why = protocol::complaint_about_servers(servers_, workers); !why.empty())
    refuse("sums with bounded loss: {}", why);
  const std::size_t overtaken = overtaken_by(options, transport, workers);
  for (int rank = 0; rank < workers; ++rank)
    ranks_.push_back(std::make_unique<RankHost>(
        *this, rank, options_.nodes.empty() ? rank : options_.nodes[at(rank)], workers, overtaken));
}

BoundedSums::~BoundedSums() = default;

CallTimes BoundedSums::run(std::span<const SumOperands> operands, std::size_t count, const Calls& calls,
                           Picoseconds horizon, Trace* trace) {
  if (operands.size() != ranks_.size())
    refuse("{} vectors for a sum of {} workers", operands.size(), ranks_.size());
  for (const SumOperands& o : operands)
    if (o.in == o.out && count > 0)
      refuse("a simulated sum with bounded loss in place: expected two vectors");
  add(count);
  losses_ = {};
  calls_ended_ = 0;
  BoundedLosses before;
  for (const auto& rank : ranks_) rank->count_flows(before);
  const bool early = !calls_.run(operands, calls, horizon, trace, options_.nodes);
  for (const auto& rank : ranks_) rank->count_flows(losses_);
  losses_.sums_again -= before.sums_again;
  losses_.timeouts -= before.timeouts;
  losses_.paths_left -= before.paths_left;
  if (calls_.count().over()) return calls_.count().take();
  throw_not_ended(simulation_, calls_.count(), nodes(), nodes(), "all_reduce with bounded loss", early,
                  horizon);
}

std::size_t BoundedSums::add(std::size_t count, double depth) {
  // Each rank has what all others send it.
  if (static_cast<double>(count * size_of(options_.type)) * static_cast<double>(ranks_.size()) > kMostMemory)
    refuse("{} elements in one call of {} workers: more than can be simulated here", count, ranks_.size());
  const std::uint8_t priority =
      protocol::queue_priority(depth, options_.queues, protocol::LayerOrder::front_first);
  for (const auto& rank : ranks_) rank->add(count, priority);
  return sums_++;
}

void BoundedSums::start(int rank, std::size_t sum, const SumOperands& operands) {
  ranks_[at(rank)]->start(sum, operands);
}

const protocol::PacketSet& BoundedSums::missing(int rank, int sender) const {
  return ranks_[at(rank)]->exchange().missing(sender);
}

const protocol::BoundedShape& BoundedSums::shape(int rank) const {
  return ranks_[at(rank)]->exchange().shape(rank);
}

std::vector<int> BoundedSums::nodes() const {
  std::vector<int> nodes;
  for (const auto& rank : ranks_) nodes.push_back(rank->node());
  return nodes;
}

void BoundedSums::fail(const protocol::BoundedFailure& failure) const {
  throw Error(failure.code, outage_text(simulation_, nodes()) + failure.text);
}

void BoundedSums::on_done(int rank, Picoseconds started) {
  if (rank == 0) ++calls_ended_;
  if (on_end_)
    on_end_(rank);
  else
    calls_.ended(rank, started);
}

}  // namespace talweg::sim
