// What a network keeps about its links beside what every packet touches. Private to the network's own files.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/network.h"

namespace talweg::sim {

// The output queues of a link with priorities; more than two of them, and what goes by what is left, are
// elsewhere: most ports are then one cache line, which every hop touches that has to wait.
struct Network::Queue {
  Packet* head = nullptr;
  Packet* tail = nullptr;
  std::int64_t bytes = 0;

  void push(Packet* packet) {
    packet->next = nullptr;
    (head == nullptr ? head : tail->next) = packet;
    tail = packet;
    bytes += packet->bytes;
  }
  Packet* pop() {
    Packet* packet = head;
    head = packet->next;
    bytes -= packet->bytes;
    return packet;
  }
};

struct alignas(64) Network::Port {
  static constexpr unsigned kQueues = 2;
  std::int64_t bytes = 0;  // of all queues
  std::int64_t most_bytes = 0;
  std::array<Queue, kQueues> queues;
};

struct Network::MoreQueues {
  std::array<Queue, kPriorities - Port::kQueues> queues;

  // In place of these, of a queue that sends what has least left first, in the order of their coming: some
  // hundreds at most where switches are as shallow as that needs them, so they are looked through.
  struct Waiting {
    std::uint32_t left = 0;
    std::uint32_t flow = 0;
    Packet* packet = nullptr;
  };
  std::vector<Waiting> by_left;

  std::uint32_t most_left() const { return std::ranges::max_element(by_left, {}, &Waiting::left)->left; }
  // The last of these that came.
  Packet* pop_most_left() {
    const std::uint32_t most = most_left();
    return take(std::ranges::find(by_left.rbegin(), by_left.rend(), most, &Waiting::left).base() - 1);
  }
  // Of the flow that has the least, what came first. Datagrams are told apart by port and sender.
  Packet* pop_least_left() {
    const Waiting least = *std::ranges::min_element(by_left, {}, &Waiting::left);
    return take(std::ranges::find_if(by_left, [&](const Waiting& w) {
      return w.flow == least.flow && w.packet->source == least.packet->source;
    }));
  }
  Packet* take(std::vector<Waiting>::iterator which) {
    Packet* packet = which->packet;
    by_left.erase(which);
    return packet;
  }
};

// The chance that at least one of n bits is wrong, by squaring: the same on every machine, which a library's
// pow need not be.
struct BitErrors {
  double rate = 0;
  double probability(int bits) const {
    if (rate <= 0) return 0;
    double right = 1;
    for (double factor = 1 - rate; bits > 0; bits >>= 1, factor *= factor)
      if ((bits & 1) != 0) right *= factor;
    return 1 - right;
  }
};

struct Network::LinkDetails {
  std::shared_ptr<const QueuePolicy> policy;
  std::unique_ptr<MoreQueues> more;  // where there are more priorities than a port has queues for
  bool port = false;                 // there are priorities, or were
  std::vector<int> groups;           // of capacity
  TransmitTime narrowest;            // the link's, or that of a slower group, behind which its packets wait
  Picoseconds burst = 0;             // as time at the link's rate
  bool down = false;                 // for whatever reason
  bool failed = false;               // itself, not a node at its end
  bool doomed = false;               // the first packet on the wire was there when the link failed
  bool in_burst = false;             // Gilbert-Elliott: in the bad state
  Picoseconds burst_until = 0;       // where that lasts a time
  LossModel loss;
  BitErrors bit_errors;
  Random random{0};
  std::array<std::uint64_t, kPriorities> marked{};
  std::uint64_t trimmed = 0;
  std::uint64_t lost = 0;
  std::array<std::uint64_t, kPriorities> dropped{};
};

struct Network::CapacityGroup {
  TransmitTime transmit;
  Picoseconds busy_until = 0;
};

inline Network::Port& Network::port(int link) {
  return ports_[static_cast<std::size_t>(link)];
}

inline Network::Queue& Network::queue(int link, unsigned number) {
  if (number < Port::kQueues) return port(link).queues[number];
  return details(link).more->queues[number - Port::kQueues];
}

inline Network::LinkDetails& Network::details(int link) {
  return details_[static_cast<std::size_t>(link)];
}

}  // namespace talweg::sim
