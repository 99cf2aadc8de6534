// Simulation: one network, its transport and its clock. Several can live in one process; none knows another.
//
//   Simulation simulation(cluster, options);
//   simulation.set_client(&client);
//   const FlowId flow = simulation.transport().open({0, 1});
//   simulation.at(start, [&] { simulation.transport().write(flow, bytes, simulation.now()); });
//   simulation.run();                                    // until nothing is left to happen, or a horizon
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/transport.h"

namespace talweg::sim {

class Dctcp;
class Pulled;

struct SimulationOptions {
  NetworkOptions network;
  TransportOptions transport;
  std::uint64_t seed = 1;
  bool operator==(const SimulationOptions&) const = default;
};

class Simulation : private Endpoint, private FlowClient {
 public:
  // `packet` is valid during the call.
  using DatagramHandler = std::function<void(const Packet& packet)>;

  Simulation(const cluster::Cluster& cluster, const SimulationOptions& options);
  ~Simulation() override;

  // Who hears from flows that nobody else hears from; null: nobody.
  void set_client(FlowClient* client) { client_ = client; }
  // A flow whose events `client` hears, until it says that it will not be there any more.
  FlowId open(const FlowOptions& options, FlowClient& client);
  void forget(const FlowClient& client);

  Picoseconds now() const { return now_; }
  // Calls back then. Times that have passed count as now.
  void at(Picoseconds when, std::function<void()> call);
  // Calls back after `first` and then after what the call returns, for as long as anything else is left to
  // happen; 0 ends it.
  void every(Picoseconds first, std::function<Picoseconds()> call);
  // Called now and then while events happen, for whoever watches a run from outside of its time.
  void watch(std::function<void()> call) { watcher_ = std::move(call); }
  // Ends when nothing is left to happen, when `stop` was called, or before the first event after `horizon`.
  // True unless the horizon came first.
  bool run(Picoseconds horizon = kNever);
  void stop() { stopped_ = true; }

  // Takes a node, or links, out of the network, or puts them back; what is out is remembered for messages.
  void set_node(int node, bool up);
  void set_links(const std::vector<int>& links, bool up);
  struct Outage {
    int node = -1;
    std::vector<int> links;  // or these
    Picoseconds since = 0;
  };
  const std::vector<Outage>& outages() const { return outages_; }

  // Datagrams: sent as they are, each a packet; they may be lost, reordered, marked or doubled. `number` is
  // the user's own. `to` is a node, or a multicast group of the network.
  void bind(int node, std::uint32_t port, DatagramHandler handler);
  struct Datagram {
    int from = 0;
    int to = 0;
    std::uint32_t port = 0;
    std::uint32_t number = 0;
    std::uint16_t bytes = 0;  // on the wire
    std::uint8_t priority = 0;
    std::uint32_t route = kNoRoute;
    std::uint32_t spread = 0;
    bool multicast = false;
    bool unmarkable = false;  // kUnmarkable
  };
  void send(const Datagram& datagram);

  Network& network() { return network_; }
  const Network& network() const { return network_; }
  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  std::uint64_t events() const { return events_done_; }
  std::uint64_t seed() const { return seed_; }

 private:
  bool run_events(Picoseconds horizon);
  void on_packet(int node, Packet* packet) override;
  void on_near(const Packet& packet) override;
  void on_near_timer(std::uint32_t target, int slots) override;
  void on_delivered(FlowId flow, std::int64_t bytes, Picoseconds now) override;
  void on_writable(FlowId flow, Picoseconds now) override;
  void remember(const Outage& outage, bool up);
  FlowClient* client_of(FlowId flow) const {
    return flow < clients_.size() && clients_[flow] != nullptr ? clients_[flow] : client_;
  }

  EventQueue events_;
  Network network_;
  Picoseconds now_ = 0;
  std::unique_ptr<Transport> transport_;
  // What it is: a branch for each packet and timer costs less than a virtual call.
  Dctcp* dctcp_ = nullptr;
  Pulled* pulled_ = nullptr;
  FlowClient* client_ = nullptr;
  std::vector<FlowClient*> clients_;  // by flow
  std::map<std::pair<int, std::uint32_t>, DatagramHandler> ports_;
  std::vector<std::function<void()>> calls_;
  std::vector<std::uint32_t> free_calls_;
  std::vector<Outage> outages_;
  std::uint64_t events_done_ = 0;
  const std::uint64_t seed_;
  std::size_t periodic_ = 0;  // events pending that keep no run alive
  std::function<void()> watcher_;
  bool stopped_ = false;
};

}  // namespace talweg::sim
