#include "study/fabric_meter.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "base/at.h"
#include "base/random.h"
#include "live/bounded/bounded_exchange.h"
#include "steer/load_schedule.h"
#include "wire/key.h"

namespace talweg::study {
namespace {

using live::kMillisecondNs;
using steer::kProbedEcn;

// Nothing has come for so long: nothing more will. What all hosts have said over the group, over the same
// network, came before that.
constexpr std::int64_t kQuietNs = 50 * kMillisecondNs;
// Nor is a queue waited for that others keep full.
constexpr std::int64_t kMostListenNs = 5'000 * kMillisecondNs;

constexpr int kCopies = 4;  // of each class: one may be lost by chance
constexpr std::int64_t kBetweenCopiesNs = 2 * kMillisecondNs;
constexpr std::uint32_t kMostTriedBytes = 16384;  // as UdpEndOptions has it
constexpr std::uint32_t kUnknownBytes = 1500;     // where the kernel knows no MTU
// Besides what the kernel says: jumbo frames, 8 KiB with all headers, Ethernet, PPPoE, tunnels, the least.
constexpr std::array<std::uint32_t, 8> kSizes = {9000, 8400, 4000, 1500, 1492, 1400, 1280, 576};
constexpr int kSizeCopies = 3;

// A train doubles twice until it takes so long that what is counted says something.
constexpr int kFirstTrain = 64, kLongestTrain = 16384;
constexpr int kTrainGrows = 4;
constexpr std::int64_t kTrainNs = 10 * kMillisecondNs;

constexpr std::uint32_t kLoadBytes = 1500;  // of an IP packet
// Beyond this a processor sends no more of them: where a host has got near, jumbo frames are taken.
constexpr double kFastRate = 5e9;
constexpr std::uint32_t kFastLoadBytes = 9000;
constexpr std::size_t kProbeBytes = 64;
constexpr std::int64_t kProbeEveryNs = 2 * kMillisecondNs;
constexpr double kProbesPart = 0.04;  // of a link, at most

// What each host tells the others of itself.
struct Address {
  std::uint64_t token = 0;
  std::array<char, 64> text{};
};
struct Abilities {
  std::uint32_t receive_bytes = 0;
  bool sets_classes = false, offloads = false, merges = false;
  std::array<char, 256> shortage{};
};

void sleep_for(std::int64_t ns) {
  const timespec time{0, ns};
  ::nanosleep(&time, nullptr);
}

template <class Value>
std::vector<Value> gather(Group& hosts, const Value& mine) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(at(hosts.size()));
  hosts.all_gather(&mine, all.data(), std::vector<std::size_t>(all.size(), sizeof mine), DataType::u8);
  return all;
}

template <class Value>
void share(Group& hosts, Value& value, int from) {
  static_assert(std::is_trivially_copyable_v<Value>);
  hosts.broadcast(&value, sizeof value, DataType::u8, from);
}

template <std::size_t n>
std::string text_of(const std::array<char, n>& from) {
  return std::string(from.data(), ::strnlen(from.data(), n));
}
template <std::size_t n>
std::array<char, n> fixed(const std::string& text) {
  std::array<char, n> to{};
  std::memcpy(to.data(), text.data(), std::min(text.size(), n - 1));
  return to;
}

}  // namespace

FabricMeter::FabricMeter(Group& hosts, const std::string& address, bool encrypts)
    : hosts_(hosts),
      socket_(live::UdpAddress(address + ":0")),
      encrypts_(encrypts),
      buffer_(kMostTriedBytes) {
  Address mine{0, fixed<64>(to_string(socket_.socket().address()))};
  wire::fill_random(std::as_writable_bytes(std::span(&mine.token, 1)));
  const std::vector<Address> all = gather(hosts_, mine);
  token_ = all[0].token;
  for (const Address& one : all) {
    Peer peer{live::UdpAddress(text_of(one.text))};
    peer.most_bytes = static_cast<std::uint32_t>(socket_.socket().path_mtu(peer.address));
    peers_.push_back(peer);
  }
}

std::vector<steer::HostSeen> FabricMeter::abilities() {
  const live::UdpSocket& socket = socket_.socket();
  Abilities mine;
  mine.receive_bytes = static_cast<std::uint32_t>(socket.window());
  const std::uint8_t hardest = wire::traffic_class(0, true) | wire::kEcnMarked;
  mine.sets_classes = socket_.send(socket.address(), hardest, std::array<std::byte, 1>{}) == 0;
  mine.offloads = socket_.offloads(socket.address());
  live::UdpAddress any = socket.address();
  any.set_port(0);
  mine.merges = live::UdpSocket(any).merges();
  mine.shortage = fixed<256>(socket.shortage());
  std::vector<steer::HostSeen> all;
  for (const Abilities& one : gather(hosts_, mine))
    all.push_back({one.sets_classes, one.offloads, one.merges, one.receive_bytes, text_of(one.shortage)});
  return all;
}

wire::ProbePacket FabricMeter::packet(std::uint8_t traffic_class) {
  wire::ProbePacket packet;
  packet.token = token_;
  packet.trial = trial_;
  packet.sender = static_cast<std::uint16_t>(rank());
  packet.left_with = traffic_class;
  return packet;
}

int FabricMeter::send(int to, wire::ProbePacket packet, std::size_t ip_bytes) {
  const std::span<std::byte> bytes(buffer_.data(), ip_bytes - around());
  packet.sent_ns = live::wall_ns();
  wire::encode_probe(packet, bytes);
  const int error = socket_.send(peers_[at(to)].address, packet.left_with, bytes);
  if (error == 0) bytes_ += static_cast<std::int64_t>(ip_bytes);
  return error;
}

template <class Take>
void FabricMeter::listen(Take&& use) {
  const WorkPtr all_sent = hosts_.start_barrier();
  std::int64_t last_ns = 0, sent_ns = 0;
  while (true) {
    const std::int64_t now = live::now_ns();
    socket_.receive([&](const live::UdpReceiver::Datagram& datagram) {
      const auto packet = wire::decode_probe(datagram.bytes, token_, trial_);
      if (!packet || packet->sender >= peers_.size()) return;
      last_ns = now;
      use(*packet, datagram);
    });
    if (sent_ns == 0 && all_sent->test()) sent_ns = now;
    if (sent_ns > 0 && (now - std::max(sent_ns, last_ns) > kQuietNs || now - sent_ns > kMostListenNs)) break;
    socket_.wait(false, 1);
  }
  all_sent->wait();
}

void FabricMeter::send_classes(int to, steer::ClassesSeen& seen) {
  for (int copy = 0; copy < kCopies; ++copy) {
    for (std::size_t p = 0; p < wire::kDscp.size(); ++p)
      for (std::size_t e = 0; e < kProbedEcn.size(); ++e) {
        const auto value = static_cast<std::uint8_t>(wire::kDscp[p] << 2 | kProbedEcn[e]);
        const int error = send(to, packet(value), around() + kProbeBytes);
        ++(error == 0 ? seen.of[p][e].sent : seen.of[p][e].refused);
      }
    sleep_for(kBetweenCopiesNs);
  }
  const std::uint32_t known = peers_[at(to)].most_bytes;
  seen.tried_bytes = std::min(known > 0 ? known : kUnknownBytes, kMostTriedBytes);
  for (int copy = 0; copy < kSizeCopies; ++copy) {
    send(to, packet(wire::kEcnCapable), seen.tried_bytes);
    for (const std::uint32_t size : kSizes)
      if (size < seen.tried_bytes) send(to, packet(wire::kEcnCapable), size);
    sleep_for(kBetweenCopiesNs);
  }
}

std::vector<steer::ClassesSeen> FabricMeter::classes(int shift) {
  struct Both {
    steer::ClassesSeen sent, received;
  } mine;
  ++trial_;
  hosts_.barrier();  // nobody takes this for an earlier trial's
  const int to = (rank() + shift) % size(), from = (rank() + size() - shift) % size();
  send_classes(to, mine.sent);
  listen([&](const wire::ProbePacket& packet, const live::UdpReceiver::Datagram& datagram) {
    const auto bytes = static_cast<std::uint32_t>(datagram.bytes.size() + around());
    mine.received.largest_bytes = std::max(mine.received.largest_bytes, bytes);
    const std::size_t p = wire::priority_of(packet.left_with);
    const auto e = static_cast<std::size_t>(std::ranges::find(kProbedEcn, packet.left_with & wire::kEcnMask) -
                                            kProbedEcn.begin());
    if (packet.sender != from || e == kProbedEcn.size() || datagram.bytes.size() != kProbeBytes) return;
    steer::ClassCount& count = mine.received.of[p][e];
    ++count.received;
    ++count.by_ecn[datagram.traffic_class & wire::kEcnMask];
    if (datagram.traffic_class >> 2 == packet.left_with >> 2)
      ++count.same_dscp;
    else
      count.other_dscp = datagram.traffic_class >> 2;
  });
  mine.received.packet_bytes = live::bounded_stride(
      mine.received.largest_bytes, socket_.socket().ipv6(),
      encrypts_ ? wire::DatagramProtection::encrypted : wire::DatagramProtection::authenticated, 8192);
  // By now routers may have said what they take.
  mine.sent.known_bytes = static_cast<std::uint32_t>(socket_.socket().path_mtu(peers_[at(to)].address));
  const std::vector<Both> all = gather(hosts_, mine);
  std::vector<steer::ClassesSeen> seen;
  for (int r = 0; r < size(); ++r) {
    const steer::ClassesSeen& sent = all[at((r + size() - shift) % size())].sent;
    steer::ClassesSeen one = all[at(r)].received;
    one.known_bytes = sent.known_bytes;
    one.tried_bytes = sent.tried_bytes;
    for (std::size_t p = 0; p < one.of.size(); ++p)
      for (std::size_t e = 0; e < one.of[p].size(); ++e) {
        one.of[p][e].sent = sent.of[p][e].sent;
        one.of[p][e].refused = sent.of[p][e].refused;
      }
    seen.push_back(one);
  }
  return seen;
}

std::uint32_t FabricMeter::load_bytes(int to) const {
  const std::uint32_t known = peers_[at(to)].most_bytes;
  return std::min(known > 0 ? known : kUnknownBytes, fast_ ? kFastLoadBytes : kLoadBytes);
}

double FabricMeter::rate(int from) {
  const int to = (from + 1) % size();
  struct Train {
    double rate = 0;
    std::int64_t ns = 0;
  } train;
  for (int packets = kFirstTrain; packets <= kLongestTrain && train.ns < kTrainNs; packets *= kTrainGrows) {
    ++trial_;
    hosts_.barrier();
    for (int i = 0; rank() == from && i < packets; ++i)
      while (send(to, packet(wire::kEcnCapable), load_bytes(to)) == EAGAIN) socket_.wait(true, 1);
    std::vector<std::pair<std::int64_t, std::size_t>> came;  // when, and bytes
    listen([&](const wire::ProbePacket&, const live::UdpReceiver::Datagram& datagram) {
      came.emplace_back(datagram.came_ns, datagram.bytes.size() + around());
    });
    // The first quarter is what token buckets let pass at once.
    const std::size_t begin = came.size() / 4;
    if (came.size() > begin + 1) {
      std::size_t bytes = 0;
      for (std::size_t i = begin + 1; i < came.size(); ++i) bytes += came[i].second;
      train.ns = std::max<std::int64_t>(1, came.back().first - came[begin].first);
      train.rate = 8e9 * static_cast<double>(bytes) / static_cast<double>(train.ns);
    }
    share(hosts_, train, to);
  }
  if (fast_ || train.rate < kFastRate) return train.rate;
  fast_ = true;
  return rate(from);
}

steer::LoadSent FabricMeter::send_load(const Load& load, std::size_t which) {
  steer::LoadSent sent;
  const std::uint32_t bytes = load_bytes(load.to);
  const double rate = load.rates[which];
  const double probes_bits = 8.0 * static_cast<double>(load.priorities.size() * (around() + kProbeBytes));
  steer::LoadSchedule::Plan plan{load.idle_ns, load.load_ns};
  plan.load_gap_ns = static_cast<std::int64_t>(8e9 * bytes / rate);
  plan.probes_gap_ns =
      std::max(kProbeEveryNs, static_cast<std::int64_t>(1e9 * probes_bits / (kProbesPart * rate)));
  Random lots(token_, static_cast<std::uint64_t>(trial_) << 16 | which);
  std::uint32_t order = 0;
  std::int64_t now = live::now_ns();
  steer::LoadSchedule schedule(now, plan);
  for (; !schedule.over(now); now = live::now_ns()) {
    const steer::LoadStage stage = schedule.stage(now);
    if (schedule.probes_due(now)) {
      for (const int p : load.priorities) {
        wire::ProbePacket probe = packet(wire::traffic_class(static_cast<std::uint8_t>(p), true));
        probe.stage = static_cast<std::uint8_t>(stage);
        probe.order = order++;
        if (send(load.to, probe, around() + kProbeBytes) == 0 && stage == steer::LoadStage::full)
          ++sent.probes[at(p)];
      }
    }
    for (int due = schedule.load_due(now); due > 0; --due) {
      const bool droppable = (lots.next() & 1) != 0;
      wire::ProbePacket packet_of_load = packet(wire::traffic_class(
          static_cast<std::uint8_t>(load.priority | (droppable ? wire::kDroppable : 0)), true));
      packet_of_load.stage = static_cast<std::uint8_t>(stage);
      packet_of_load.load = 1;
      packet_of_load.order = order++;
      std::uint32_t& number = droppable ? sent.droppable : sent.capable;
      packet_of_load.number = number;
      if (send(load.to, packet_of_load, bytes) != 0) continue;
      ++number;
      sent.bytes += bytes;
    }
    sleep_for(steer::LoadSchedule::kTickNs);
  }
  sent.seconds = schedule.load_seconds(now);
  return sent;
}

steer::LoadSeen FabricMeter::load(const Load& load) {
  ++trial_;
  hosts_.barrier();
  const std::uint64_t dropped = socket_.socket().dropped();
  const auto own = std::ranges::find(load.from, rank());
  steer::LoadSent sent;
  if (own != load.from.end()) sent = send_load(load, static_cast<std::size_t>(own - load.from.begin()));
  std::vector<steer::LoadArrival> arrivals;
  listen([&](const wire::ProbePacket& packet, const live::UdpReceiver::Datagram& datagram) {
    const auto sender = std::ranges::find(load.from, packet.sender);
    if (sender == load.from.end() || packet.stage > static_cast<std::uint8_t>(steer::LoadStage::full)) return;
    steer::LoadArrival arrival;
    arrival.sender = static_cast<std::uint16_t>(sender - load.from.begin());
    arrival.stage = static_cast<steer::LoadStage>(packet.stage);
    arrival.load = packet.load != 0;
    arrival.ecn_capable = (packet.left_with & wire::kEcnMask) != 0;
    arrival.marked = (datagram.traffic_class & wire::kEcnMask) == wire::kEcnMarked;
    arrival.priority = wire::priority_of(packet.left_with);
    arrival.order = packet.order;
    arrival.number = packet.number;
    arrival.bytes = static_cast<std::uint32_t>(datagram.bytes.size() + around());
    arrival.sent_ns = packet.sent_ns;
    arrival.came_ns = datagram.came_ns;
    arrivals.push_back(arrival);
  });
  const std::vector<steer::LoadSent> by_host = gather(hosts_, sent);
  std::vector<steer::LoadSent> by_sender;
  for (const int host : load.from) by_sender.push_back(by_host[at(host)]);
  steer::LoadSeen seen = rank() == load.to ? steer::load_seen(arrivals, by_sender) : steer::LoadSeen{};
  seen.to = load.to;
  seen.priority = load.priority;
  seen.asked_rate = std::accumulate(load.rates.begin(), load.rates.end(), 0.0);
  seen.dropped_at_host = static_cast<std::uint32_t>(socket_.socket().dropped() - dropped);
  share(hosts_, seen, load.to);
  return seen;
}

}  // namespace talweg::study
