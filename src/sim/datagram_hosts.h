// DatagramHosts: nodes of a simulated network that run protocols which speak in datagrams. What a host does
// is a class derived from Host; the rest is here: datagrams travel as packets, and may be lost, overtaken or
// doubled on the way, and a processor has its time.
//
// A host handles what has come while it was busy as one batch, and sends what follows from that as one batch
// to each receiver: both cost its processor what the options say. A datagram that comes after one that was
// sent very much later on the same way counts as lost: it has been forgotten.
//
// With `turns` a datagram is handed to its host's link when that is free, and what is for other receivers, of
// other jobs or by other paths has turns of its own, as flows have (transport.h). Without, what a host sends
// joins the queue in front of the link at once.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ring_queue.h"
#include "forest/host_costs.h"
#include "sim/cores.h"
#include "sim/link_turns.h"
#include "sim/ranks.h"
#include "sim/simulation.h"
#include "wire/datagram.h"

namespace talweg::sim {

class DatagramHosts {
 public:
  static constexpr std::int64_t kNoTimeNs = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kPatienceNs = 1'200'000'000'000;  // a call that takes longer has failed
  class Host;

  // `port`: one that nothing else of the simulation has. Hosts are made in the simulation's network, which
  // outlives them.
  DatagramHosts(Simulation& simulation, const HostCosts& costs, std::uint32_t port, bool turns = false);
  DatagramHosts(const DatagramHosts&) = delete;
  DatagramHosts& operator=(const DatagramHosts&) = delete;

  std::int64_t now_ns() const { return simulation_.now() / kPicosecondsPerNanosecond; }

 private:
  Simulation& simulation_;
  const HostCosts costs_;
  const std::uint32_t port_;
  const bool turns_;
  Cores cores_;
  std::vector<Host*> by_node_;  // null: none is there
  std::uint64_t batches_ = 0;   // that were sent
};

// What datagrams have around their payload: with a tag, over IPv4; and the largest payload of those that fill
// a packet of the transport.
std::size_t datagram_wire_bytes(std::size_t payload, const TransportOptions& transport);
std::size_t largest_datagram_payload(const TransportOptions& transport);

class DatagramHosts::Host {
 public:
  // `number`: what the protocol calls it. A datagram may be overtaken by so many to the same host.
  Host(DatagramHosts& hosts, int node, std::size_t number, std::size_t overtaken);
  virtual ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  int node() const { return node_; }
  std::size_t number() const { return number_; }

 protected:
  struct Message {
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
  };
  using MessagePointer = std::shared_ptr<const Message>;
  struct Arrival {
    bool marked = false;  // by the network (ECN)
    std::int64_t came_ns = 0;
  };
  virtual void take(const Host& from, const Message& message, const Arrival& arrival) = 0;
  virtual void end_of_batch() {}  // that has been taken
  virtual std::int64_t next_time_ns() const { return kNoTimeNs; }
  virtual void on_time() {}                       // which has come
  virtual bool reduces() const { return false; }  // what it receives

  DatagramHosts& hosts() const { return hosts_; }
  // A copy, of which post() names each receiver. The header's length becomes the payload's.
  static MessagePointer make(const wire::DatagramHeader& header, std::span<const std::byte> payload);
  // It leaves with what else is in the outbox, and its class says what the network may do with it. Which of
  // equal ways it takes is up to the two hosts and the path, as for datagrams of as many sockets.
  void post(Host& to, MessagePointer message) {
    const std::uint8_t service = message->header.service;
    post(to, std::move(message), service);
  }
  // With another class on its way.
  void post(Host& to, MessagePointer message, std::uint8_t service, std::size_t path = 0);
  // To all members of a multicast group of the network, which it is sent to once. `group` is among those that
  // the host has; it is known by the number that add_group() returns.
  std::size_t add_group(int group);
  void post_all(std::size_t group, MessagePointer message);
  // To be called after all but the above that may have posted something, or changed the next time.
  void rouse();

 private:
  struct Letter {
    int to = -1;                       // a node, or a group of the network
    std::uint64_t* counted = nullptr;  // of the receiver
    bool multicast = false;
    std::uint32_t number = 0;
    std::uint32_t spread = 0;
    std::uint16_t bytes = 0;
    std::uint8_t service = 0;  // wire::DatagramHeader::service
    std::uint64_t flow = 0;    // whose turn it takes
  };
  struct Arrived {
    const Host* from = nullptr;
    MessagePointer message;
    std::uint16_t bytes = 0;
    Arrival arrival;
  };
  // What is on its way to one host, or may be, and what was lost not long ago: numbers ascend.
  struct Way {
    std::deque<MessagePointer> messages;
    std::uint32_t first = 1;
  };
  struct Group {
    int number = 0;  // of the network
    Way way;
    std::uint64_t counted = 0;  // as of a receiver
  };
  std::uint32_t keep(Way& way, MessagePointer message) const;
  MessagePointer arrived_with(const Packet& packet, const Host& there);
  void arm();
  void arrive(const Packet& packet);
  void receive();
  void take_batch();
  void send();
  void leave();
  void hand_over(const Letter& letter);
  bool wait_for_turn(const Letter& letter);
  void take_turns(std::size_t line, bool due);
  template <class Then>
  void work(Picoseconds cost, Then then);

  DatagramHosts& hosts_;
  const int node_;
  const std::size_t number_;
  const std::size_t overtaken_;
  std::vector<std::unique_ptr<Way>> ways_;  // by node
  std::vector<std::unique_ptr<Group>> groups_;
  std::uint32_t spread_ = 0;
  std::uint64_t counted_ = 0;  // the last batch in which it was found to be a receiver
  std::vector<Letter> outbox_, leaving_;
  struct Line {
    int link = -1;  // in front of which it waits
    LinkTurns<Letter> letters{};
    bool going_on = false;  // an event is pending that goes on with it
  };
  std::vector<Line> lines_;
  RingQueue<Arrived> inbox_;
  std::size_t at_hand_ = 0;  // of the inbox
  bool working_ = false;
  Picoseconds armed_ = kNever;
};

}  // namespace talweg::sim
