#include "sim/datagram_hosts.h"

#include <algorithm>
#include <utility>

#include "base/at.h"

namespace talweg::sim {

namespace {

constexpr auto kProtection = wire::DatagramProtection::authenticated;
constexpr std::size_t kMostKept = 16;  // times as many as may overtake
constexpr int kUdpHeaders = 28;        // with IP's
constexpr int kTcpHeaders = 52;        // IP's, TCP's and its timestamps: a part of a transport's header

// As the addresses and ports of sockets tell them apart.
std::uint64_t flow_of(int to, std::size_t path, std::uint32_t job) {
  return static_cast<std::uint64_t>(path) << 56 | static_cast<std::uint64_t>(to) << 32 | job;
}

}  // namespace

std::size_t datagram_wire_bytes(std::size_t payload, const TransportOptions& transport) {
  const int below = std::max(0, transport.header_bytes - kTcpHeaders);
  return payload + wire::kDatagramHeaderBytes + wire::trailer_bytes(kProtection) + kUdpHeaders +
         static_cast<std::size_t>(below);
}

std::size_t largest_datagram_payload(const TransportOptions& transport) {
  const std::size_t packet = static_cast<std::size_t>(transport.payload_bytes) + std::size_t{kTcpHeaders};
  return wire::datagram_payload(packet, false, kProtection);
}

DatagramHosts::DatagramHosts(Simulation& simulation, const HostCosts& costs, std::uint32_t port, bool turns)
    : simulation_(simulation),
      costs_(costs),
      port_(port),
      turns_(turns),
      cores_(simulation.network().cluster().shared_cores),
      by_node_(simulation.network().cluster().nodes.size()) {}

DatagramHosts::Host::Host(DatagramHosts& hosts, int node, std::size_t number, std::size_t overtaken)
    : hosts_(hosts), node_(node), number_(number), overtaken_(overtaken), ways_(hosts.by_node_.size()) {
  hosts.by_node_[at(node)] = this;
  hosts.simulation_.bind(node, hosts.port_, [this](const Packet& packet) { arrive(packet); });
}

DatagramHosts::Host::~Host() {
  hosts_.simulation_.bind(node_, hosts_.port_, {});
  hosts_.by_node_[at(node_)] = nullptr;
}

DatagramHosts::Host::MessagePointer DatagramHosts::Host::make(const wire::DatagramHeader& header,
                                                              std::span<const std::byte> payload) {
  auto message = std::make_shared<Message>(Message{header, {payload.begin(), payload.end()}});
  message->header.length = static_cast<std::uint16_t>(payload.size());
  return message;
}

void DatagramHosts::Host::post(Host& to, MessagePointer message, std::uint8_t service, std::size_t path) {
  const TransportOptions& transport = hosts_.simulation_.transport().options();
  const auto flow = static_cast<std::uint64_t>(path) << 56 | static_cast<std::uint64_t>(node_) << 32 |
                    static_cast<std::uint64_t>(to.node_);
  const std::uint32_t spread =
      transport.spray ? spread_++
                      : static_cast<std::uint32_t>(Random(hosts_.simulation_.seed(), flow).next());
  auto& way = ways_[at(to.node_)];
  if (!way) way = std::make_unique<Way>();
  const auto bytes = static_cast<std::uint16_t>(datagram_wire_bytes(message->payload.size(), transport));
  const std::uint64_t turn = flow_of(to.node_, path, message->header.job);
  outbox_.push_back(
      {to.node_, &to.counted_, false, keep(*way, std::move(message)), spread, bytes, service, turn});
}

std::size_t DatagramHosts::Host::add_group(int group) {
  groups_.push_back(std::make_unique<Group>());
  groups_.back()->number = group;
  return groups_.size() - 1;
}

void DatagramHosts::Host::post_all(std::size_t group, MessagePointer message) {
  const TransportOptions& transport = hosts_.simulation_.transport().options();
  Group& to = *groups_[group];
  const auto bytes = static_cast<std::uint16_t>(datagram_wire_bytes(message->payload.size(), transport));
  const std::uint8_t service = message->header.service;
  outbox_.push_back({to.number, &to.counted, true, keep(to.way, std::move(message)), 0, bytes, service, 0});
}

// Its number on this way.
std::uint32_t DatagramHosts::Host::keep(Way& way, MessagePointer message) const {
  const std::uint32_t number = way.first + static_cast<std::uint32_t>(way.messages.size());
  way.messages.push_back(std::move(message));
  // Where nothing arrives any more, what is sent again and again is not kept for ever.
  for (; way.messages.size() > kMostKept * overtaken_; ++way.first) way.messages.pop_front();
  return number;
}

// Null: it has been forgotten. So is what should have come long before it.
DatagramHosts::Host::MessagePointer DatagramHosts::Host::arrived_with(const Packet& packet,
                                                                      const Host& there) {
  const bool multicast = (packet.flags & kMulticast) != 0;
  const auto group = std::ranges::find(groups_, packet.destination, [](const auto& g) { return g->number; });
  if (multicast && group == groups_.end()) return nullptr;  // of who was there before
  Way& way = multicast ? (*group)->way : *ways_[at(there.node_)];
  const std::uint32_t number = packet.number;
  if (number < way.first) return nullptr;
  MessagePointer found = way.messages[number - way.first];
  for (; way.first + overtaken_ < number; ++way.first) way.messages.pop_front();
  return found;
}

void DatagramHosts::Host::rouse() {
  arm();
  if (working_ || outbox_.empty()) return;
  working_ = true;
  send();
}

void DatagramHosts::Host::arm() {
  const std::int64_t next = next_time_ns();
  if (next >= DatagramHosts::kNoTimeNs / kPicosecondsPerNanosecond) return;
  const Picoseconds when = std::max(next * kPicosecondsPerNanosecond, hosts_.simulation_.now());
  if (when >= armed_) return;
  armed_ = when;
  hosts_.simulation_.at(when, [this, when] {
    if (armed_ != when) return;
    armed_ = kNever;
    if (next_time_ns() <= hosts_.now_ns()) on_time();
    rouse();
  });
}

void DatagramHosts::Host::arrive(const Packet& packet) {
  if ((packet.flags & (kDamaged | kTrimmed)) != 0) return;  // its tag does not match
  Host* const from = hosts_.by_node_[at(packet.source)];
  if (from == nullptr) return;  // it is not there any more
  MessagePointer message = from->arrived_with(packet, *this);
  if (message == nullptr) return;
  inbox_.push({from, std::move(message), packet.bytes, {(packet.flags & kMarked) != 0, hosts_.now_ns()}});
  if (working_) return;
  working_ = true;
  hosts_.simulation_.at(hosts_.simulation_.now(), [this] { receive(); });
}

// All that has come by now, in one batch.
void DatagramHosts::Host::receive() {
  std::int64_t bytes = 0;
  at_hand_ = 0;
  while (at_hand_ < inbox_.size() && bytes < forest::kMostBatchBytes) bytes += inbox_[at_hand_++].bytes;
  if (at_hand_ == 0) {
    if (!outbox_.empty()) return send();  // what a timer has posted meanwhile
    working_ = false;
    return;
  }
  work(hosts_.costs_.of(1, bytes, reduces() ? bytes : 0), [this] { take_batch(); });
}

void DatagramHosts::Host::take_batch() {
  for (; at_hand_ > 0; --at_hand_) {
    const Arrived arrived = inbox_.pop();
    take(*arrived.from, *arrived.message, arrived.arrival);
  }
  end_of_batch();
  arm();
  send();
}

void DatagramHosts::Host::send() {
  if (outbox_.empty()) return receive();
  leaving_.swap(outbox_);
  ++hosts_.batches_;
  std::int64_t bytes = 0;
  Picoseconds receivers = 0;
  for (const Letter& letter : leaving_) {
    bytes += letter.bytes;
    if (*letter.counted != hosts_.batches_) ++receivers;
    *letter.counted = hosts_.batches_;
  }
  work(hosts_.costs_.of(receivers, bytes, 0), [this] { leave(); });
}

void DatagramHosts::Host::leave() {
  for (const Letter& letter : leaving_)
    if (!wait_for_turn(letter)) hand_over(letter);
  leaving_.clear();
  receive();
}

void DatagramHosts::Host::hand_over(const Letter& letter) {
  Simulation::Datagram datagram;
  datagram.from = node_;
  datagram.to = letter.to;
  datagram.multicast = letter.multicast;
  datagram.port = hosts_.port_;
  datagram.number = letter.number;
  datagram.bytes = letter.bytes;
  datagram.spread = letter.spread;
  datagram.priority = letter.service & wire::kPriorityMask;
  datagram.unmarkable = (letter.service & wire::kDroppable) != 0;
  hosts_.simulation_.send(datagram);
}

// False: there are no turns, or there is no way, which is for the network to count.
bool DatagramHosts::Host::wait_for_turn(const Letter& letter) {
  if (!hosts_.turns_ || letter.multicast) return false;
  const int link = hosts_.simulation_.network().first_link(node_, letter.to, kNoRoute, letter.spread);
  if (link < 0) return false;
  auto line = std::ranges::find(lines_, link, &Line::link);
  if (line == lines_.end()) line = lines_.insert(lines_.end(), {.link = link});
  line->letters.push(letter.flow, letter.service & wire::kPriorityMask, letter);
  if (!line->going_on) take_turns(static_cast<std::size_t>(line - lines_.begin()), false);
  return true;
}

// `due`: the link is known to be free for one.
void DatagramHosts::Host::take_turns(std::size_t line, bool due) {
  Line& l = lines_[line];
  for (; !l.letters.empty(); due = false) {
    const Picoseconds now = hosts_.simulation_.now();
    const Picoseconds clear = due ? now : hosts_.simulation_.network().clear_at(l.link, now);
    l.going_on = clear > now;
    if (l.going_on) return hosts_.simulation_.at(clear, [this, line] { take_turns(line, true); });
    hand_over(l.letters.pop());
  }
  l.going_on = false;
}

template <class Then>
void DatagramHosts::Host::work(Picoseconds cost, Then then) {
  const Picoseconds finish = hosts_.cores_.finish(hosts_.simulation_.now(), cost);
  if (finish <= hosts_.simulation_.now()) return then();
  hosts_.simulation_.at(finish, std::move(then));
}

}  // namespace talweg::sim
