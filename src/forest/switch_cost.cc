#include "forest/switch_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/fail.h"
#include "cluster/multicast.h"
#include "forest/cost_words.h"

namespace talweg::forest {

namespace {

// A time, by what it is spent on.
struct SwitchedTime {
  double links = 0, processors = 0, latency = 0;
  double seconds() const { return links + processors + latency; }
};

class SwitchPricing {
 public:
  // Of few bytes not every switch has a block, nor is it a whole one.
  SwitchPricing(const CostModel& model, std::span<const NodeId> switches, std::int64_t bytes,
                const SwitchedShape& shape, std::span<const NodeId> racks)
      : model_(model),
        network_(model.network()),
        shape_(shape),
        wire_(static_cast<double>(shape.wire_bytes - shape.vector_bytes +
                                  std::min(bytes, shape.vector_bytes))) {
    const std::int64_t datagrams = (bytes + shape.vector_bytes - 1) / shape.vector_bytes;
    const auto in_use = static_cast<std::size_t>(
        std::clamp<std::int64_t>(datagrams, 1, static_cast<std::int64_t>(switches.size())));
    switches = switches.first(in_use);
    datagrams_ = std::ceil(static_cast<double>(datagrams) / static_cast<double>(in_use));
    if (datagrams_ == 0) return;
    find_ways(switches, racks);
    find_trees();
    load_links();
    find_busiest_link();
    find_busiest_processor(racks.empty() ? switches.size() : 1);
    find_round_trip();
  }

  Breakdown breakdown() const {
    const SwitchedTime all = taken(1, 1, 1);
    Breakdown result{.links = all.links, .processors = all.processors, .latency = all.latency};
    const double without[] = {taken(0, 1, 1).seconds(), taken(1, 0, 1).seconds(), taken(1, 1, 0).seconds()};
    const auto least = std::min_element(std::begin(without), std::end(without));
    result.limit = static_cast<Breakdown::Limit>(least - std::begin(without));
    result.without = *least;
    result.reason = words(result);
    return result;
  }

 private:
  struct Way {
    NodeId worker, at, top;  // where it sends, and where that is summed with all others'
  };
  struct Switch {
    int senders = 0;
    bool is_rack = false;
    std::vector<int> tree = {};  // by which sums go down once to all senders; empty: they go to each
    double up = 1;               // that a rack's passes on, as SwitchedShape::up
    int answers() const { return tree.empty() ? senders : 1; }
  };

  // Who sends to whom, and each switch with all that send to it.
  void find_ways(std::span<const NodeId> switches, std::span<const NodeId> racks) {
    for (NodeId worker = 0; worker < network_.workers(); ++worker) {
      if (!racks.empty()) {
        ++switches_[racks[at(worker)]].senders;
        ways_.push_back({worker, racks[at(worker)], switches[0]});
      }
      for (const NodeId to : switches.first(racks.empty() ? switches.size() : 0)) {
        ++switches_[to].senders;
        ways_.push_back({worker, to, to});
      }
    }
    if (racks.empty()) return;
    for (auto& [rack, at_rack] : switches_) {
      at_rack.is_rack = true;
      at_rack.up = std::min(1.0, shape_.up * at_rack.senders);
      most_up_ = std::max(most_up_, at_rack.up);
    }
    switches_[switches[0]].senders = static_cast<int>(switches_.size());
  }

  void find_trees() {
    for (auto& [node, sums] : switches_) {
      if (!network_.nodes[at(node)].can_multicast) continue;
      std::vector<int> to;
      for (const Way& way : ways_)
        if (way.at == node) to.push_back(way.worker);
      if (to.size() > 1) sums.tree = cluster::multicast_tree(network_, model_.routes(), node, to);
    }
  }

  // What a worker's datagrams pass, and its sums; what a rack's switch passes on, and gets back.
  void load_links() {
    loads_.resize(network_.links.size());
    const double each = datagrams_ * wire_;
    const auto add = [&](int link, double part) { loads_[at(link)] += part * each; };
    const auto go_up = [&](NodeId from, NodeId to, double share) {
      model_.routes().for_each_share(from, to, [&](int link, double part) { add(link, share * part); });
    };
    for (const Way& way : ways_) {
      go_up(way.worker, way.at, shape_.up);
      if (switches_.at(way.at).tree.empty()) model_.routes().for_each_share(way.at, way.worker, add);
    }
    for (const auto& [node, sums] : switches_) {
      if (sums.is_rack) {
        go_up(node, ways_[0].top, sums.up);
        model_.routes().for_each_share(ways_[0].top, node, add);
      }
      std::set<int> leaders;  // of links that are alike each has it once
      for (const int link : sums.tree) leaders.insert(model_.routes().leader(link));
      for (const int link : leaders) add(link, 1);
    }
  }

  void find_busiest_link() {
    const auto consider = [&](double load, const Bandwidth& capacity, std::string name) {
      const double seconds = load / capacity.bytes_per_second();
      if (seconds <= link_seconds_) return;
      link_seconds_ = seconds;
      link_bytes_ = load;
      link_name_ = std::move(name);
    };
    for (std::size_t l = 0; l < loads_.size(); ++l)
      if (loads_[l] > 0)
        consider(loads_[l], network_.links[l].capacity, link_name(network_, network_.links[l]));
    for (const cluster::CapacityGroup& group : network_.groups) {
      double load = 0;
      for (const int link : group.links) load += loads_[at(model_.routes().leader(link))];
      if (load > 0) consider(load, group.capacity, group.name);
    }
  }

  // Of a switch that takes what so many send, adds it, and answers each, or all at once; a rack's sends one
  // on, and takes its answer.
  double of_switch(NodeId node, const Switch& sums) const {
    const CostParameters& p = model_.parameters();
    const double senders = sums.senders * of_each(node);
    const double ways = senders + (sums.is_rack ? 1 : 0);
    const double sent = sums.answers() + (sums.is_rack ? sums.up : 0);
    // It receives batches as large as they can be, and answers each of them with one to every worker.
    const double batches = datagrams_ * wire_ * ways / static_cast<double>(kMostBatchBytes);
    return datagrams_ * wire_ * ((ways + sent) * p.tcp.per_byte + senders * p.reduce_per_byte) +
           (batches + std::min(batches, datagrams_) * sent) * p.tcp.per_batch;
  }

  // Of what comes down, as much as each of those sends that this switch answers.
  double of_each(NodeId node) const {
    const bool of_racks = ways_[0].at != ways_[0].top && node == ways_[0].top;
    return of_racks ? most_up_ : shape_.up;
  }

  // `switches`: that each worker sends to.
  void find_busiest_processor(std::size_t switches) {
    const CostParameters& p = model_.parameters();
    const double workers = network_.workers();
    // By each worker, and to it.
    const double moved = (1 + shape_.up) * datagrams_ * wire_ * static_cast<double>(switches);
    const double of_worker = moved * p.tcp.per_byte;
    double of_busiest = 0, of_all = 0;
    double ways = 0;
    for (const auto& [node, sums] : switches_) {
      const double seconds = of_switch(node, sums);
      of_all += seconds;
      if (seconds <= of_busiest) continue;
      of_busiest = seconds;
      ways = sums.senders * of_each(node) + sums.answers() + (sums.is_rack ? 1 + sums.up : 0);
    }
    processor_seconds_ = std::max(of_worker, of_busiest);
    processor_bytes_ = of_busiest >= of_worker ? datagrams_ * wire_ * ways : moved;
    processor_name_ = of_busiest >= of_worker ? "a switch" : "a worker";
    if (network_.shared_cores == 0) return;
    const double all = (workers * of_worker + of_all) / network_.shared_cores;
    if (all <= processor_seconds_) return;
    processor_seconds_ = all;
    processor_bytes_ = 2 * moved * workers;
    processor_name_ = "whoever shares the cores";
  }

  // Of one datagram to a switch and of its sum back, of the worker for which that takes longest. Switches on
  // the way have it whole before they pass it on.
  void find_round_trip() {
    for (const Way& way : ways_) {
      SwitchedTime trip;
      add_trip(way.worker, way.at, trip);
      if (way.at != way.top) add_trip(way.at, way.top, trip);
      if (trip.seconds() > trip_.seconds()) trip_ = trip;
    }
  }

  // There and back.
  void add_trip(NodeId one, NodeId other, SwitchedTime& trip) const {
    const CostParameters& p = model_.parameters();
    const double up = switches_.contains(one) ? switches_.at(one).up : shape_.up;
    for (const auto& [from, there] : {std::pair{one, other}, {other, one}}) {
      const double own = from == one ? up : 1;
      for (const int link : model_.routes().path(from, there)) {
        const double others = loads_[at(model_.routes().leader(link))] / (datagrams_ * wire_);
        trip.links += std::max(own, others) * wire_ / network_.links[at(link)].capacity.bytes_per_second();
      }
      trip.latency += static_cast<double>(model_.routes().latency(from, there).value) * 1e-9;
      trip.processors += 2 * (p.tcp.per_batch + own * wire_ * p.tcp.per_byte);
    }
    // The switch has the others', too, to receive and to answer, and is at those before it when one comes.
    const Switch& sums = switches_.at(other);
    trip.processors += sums.senders * up * wire_ * (p.tcp.per_byte + p.reduce_per_byte) +
                       sums.answers() * (p.tcp.per_batch + wire_ * p.tcp.per_byte);
  }

  // With links, processors and latency that cost so many times as much.
  SwitchedTime taken(double links, double processors, double latency) const {
    const SwitchedTime trip{links * trip_.links, processors * trip_.processors, latency * trip_.latency};
    SwitchedTime all = trip;
    if (datagrams_ <= 1) return all;
    const double behind = 1 - 1 / datagrams_;
    const double on_link = behind * links * link_seconds_;
    const double on_processor = behind * processors * processor_seconds_;
    const double rounds = std::ceil(datagrams_ / shape_.slots) - 1;
    const double most = std::max({on_link, on_processor, rounds * trip.seconds()});
    if (most == on_link) {
      all.links += on_link;
    } else if (most == on_processor) {
      all.processors += on_processor;
    } else {
      all.links += rounds * trip.links;
      all.processors += rounds * trip.processors;
      all.latency += rounds * trip.latency;
    }
    return all;
  }

  std::string words(const Breakdown& found) const {
    const double seconds = found.seconds();
    if (seconds <= 0) return "nothing moves";
    if (found.limit == Breakdown::Limit::links)
      return fmt::format("links limit: {} carries {} of the {} that it can in this time", link_name_,
                         rounded_bytes(link_bytes_), rounded_bytes(link_bytes_ / link_seconds_ * seconds));
    if (found.limit == Breakdown::Limit::processors)
      return fmt::format("processors limit: {} is busy for {:.0f} % of the time, with {} in all",
                         processor_name_, 100 * found.processors / seconds, rounded_bytes(processor_bytes_));
    return fmt::format("latency limits: {} slots of {} have a round trip of {:.0f} us each", shape_.slots,
                       rounded_bytes(static_cast<double>(shape_.vector_bytes)), trip_.seconds() * 1e6);
  }

  const CostModel& model_;
  const cluster::Cluster& network_;
  const SwitchedShape shape_;
  const double wire_;     // bytes of a datagram
  double datagrams_ = 0;  // of a sum, by one switch
  double most_up_ = 0;    // of racks' switches, as SwitchedShape::up
  std::vector<Way> ways_;
  std::map<NodeId, Switch> switches_;
  std::vector<double> loads_;  // bytes, by link; of links that share a leader, of that one
  double link_seconds_ = 0, link_bytes_ = 0;
  std::string link_name_;
  double processor_seconds_ = 0, processor_bytes_ = 0;
  const char* processor_name_ = "";
  SwitchedTime trip_;
};

}  // namespace

Breakdown switched_breakdown(const CostModel& model, std::span<const NodeId> switches, std::int64_t bytes,
                             const SwitchedShape& shape, std::span<const NodeId> racks) {
  if (switches.empty()) refuse("a sum in the network needs a switch");
  const cluster::Cluster& network = model.network();
  const auto check = [&](NodeId one, NodeId other) {
    if (!model.routes().reachable(one, other) || !model.routes().reachable(other, one))
      refuse("{} and {} do not reach each other", network.nodes[at(one)].name, network.nodes[at(other)].name);
  };
  for (NodeId worker = 0; worker < network.workers(); ++worker) {
    for (const NodeId to : switches) check(worker, to);
    if (!racks.empty()) check(worker, racks[at(worker)]);
    if (!racks.empty()) check(racks[at(worker)], switches[0]);
  }
  return SwitchPricing(model, switches, bytes, shape, racks).breakdown();
}

}  // namespace talweg::forest
