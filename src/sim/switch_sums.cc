#include "sim/switch_sums.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/at.h"
#include "base/fail.h"
#include "cluster/multicast.h"
#include "protocol/bounded/loss_budget.h"
#include "sim/outage.h"

namespace talweg::sim {

namespace {

constexpr double kNoQuota = 1e15;  // bytes per second

}  // namespace

SwitchJob switch_job(const SwitchSumsOptions& options, const TransportOptions& transport, int workers) {
  if (options.switches.empty()) refuse("a sum in the network needs a switch");
  if (at(workers) + options.switches.size() > 0xffff)
    refuse("a switch sums for 65534 workers at most, and not for {}", workers);
  if (!(options.may_lose >= 0 && options.may_lose <= 0.5))
    refuse("{} of a worker's blocks that may be missing: expected 0 to 0.5", options.may_lose);
  const bool tolerant = options.may_lose > 0;
  protocol::Sum sum;
  sum.format = options.format;
  sum.sparse = options.sparse;
  sum.tolerance.ppm = protocol::millionths(options.may_lose);
  if (const std::string wrong = protocol::wrong_tolerance(sum); !wrong.empty()) refuse("{}", wrong);
  if (tolerant && !options.racks.empty())
    refuse("nothing may be missing of sums that racks' switches make, below another");
  const auto shape = protocol::shape_of_blocks(largest_datagram_payload(transport), 0, tolerant);
  if (!shape)
    refuse("packets with {} bytes of payload have no room for a block of what is summed",
           transport.payload_bytes);
  SwitchJob job;
  job.format = options.format;
  job.datagram_bytes = datagram_wire_bytes(shape->payload, transport);
  protocol::JobTerms& terms = job.terms;
  terms.job = 1;
  terms.epoch = 1;
  terms.workers = static_cast<std::uint16_t>(workers);
  terms.tolerant = tolerant;
  std::map<int, int> at_racks;
  for (const int rack : options.racks) ++at_racks[rack];
  std::size_t most = options.racks.empty() ? at(workers) : at_racks.size();  // that send to one switch
  for (const auto& [rack, senders] : at_racks) most = std::max(most, at(senders));
  terms.slots = static_cast<std::uint16_t>(
      protocol::slots_that_fit(options.window_bytes, options.window_bytes, most, options.switches.size(),
                               job.datagram_bytes, options.slots));
  terms.columns = shape->columns;
  terms.block = shape->block;
  terms.bytes_per_second = kNoQuota;
  terms.burst_bytes = protocol::burst_for(terms, job.datagram_bytes);
  return job;
}

class SwitchSums::SwitchHost : public DatagramHosts::Host {
 public:
  // `above`: of the rack that has this number; null: it has none.
  SwitchHost(SwitchSums& sums, int node, std::size_t number, std::size_t overtaken, std::size_t senders,
             SwitchHost* above)
      : Host(sums.hosts_, node, number, overtaken),
        sums_(sums),
        box_(limits(sums.job_.terms)),
        above_(above) {
    protocol::JobTerms terms = sums.job_.terms;
    terms.workers = static_cast<std::uint16_t>(senders);
    terms.self = static_cast<std::uint16_t>(terms.workers + number);
    if (above != nullptr) terms.above.emplace().worker = static_cast<std::uint16_t>(number);
    if (const auto refused = box_.open(terms)) refuse("a simulated switch: {}", refused->text);
  }
  // Whoever sends to it, by their numbers.
  void answers(Host* sender) { senders_.push_back(sender); }
  // Once all are there. What goes to all of them leaves once, where the network has it.
  void multicasts(const cluster::Routes& routes) {
    std::vector<int> to;
    for (const Host* const sender : senders_) to.push_back(sender->node());
    Network& network = sums_.simulation_.network();
    const std::vector<int> tree = cluster::multicast_tree(network.cluster(), routes, node(), to);
    if (tree.empty()) return;
    group_ = add_group(network.add_multicast(tree));
    box_.send_once(sums_.job_.terms.job, true);
  }
  std::size_t senders() const { return senders_.size(); }
  protocol::SwitchCounters counters() const { return *box_.counters(sums_.job_.terms.job); }

 private:
  static protocol::SwitchLimits limits(protocol::JobTerms terms) {
    terms.above.emplace();  // it takes a little more memory
    protocol::SwitchLimits limits;
    limits.memory_bytes = protocol::memory_of(terms).total;
    limits.bytes_per_second = terms.bytes_per_second;
    return limits;
  }
  void take(const Host& from, const Message& message, const Arrival&) override {
    const std::uint64_t sender = message.header.sender;
    perform(&from == above_ ? box_.on_above(message.header, message.payload, hosts().now_ns())
                            : box_.on(message.header, message.payload, {sender, 1}, hosts().now_ns()));
  }
  bool reduces() const override { return true; }
  std::int64_t next_time_ns() const override { return box_.next_time_ns(); }
  void on_time() override {
    while (box_.next_time_ns() <= hosts().now_ns()) perform(box_.on_time(hosts().now_ns()));
  }
  void perform(std::span<const protocol::SwitchAction> actions) {
    for (const protocol::SwitchAction& action : actions) {
      const MessagePointer answer = make(action.header, action.payload);
      if (action.to == protocol::SwitchAction::To::above) post(*above_, answer);
      if (action.to == protocol::SwitchAction::To::all && group_) {
        post_all(*group_, answer);
        continue;
      }
      for (const protocol::Peer& peer : action.peers)
        post(*senders_[static_cast<std::size_t>(peer.host)], answer);
    }
  }

  SwitchSums& sums_;
  protocol::AggregationSwitch box_;
  SwitchHost* const above_;
  std::vector<Host*> senders_;
  std::optional<std::size_t> group_;
};

class SwitchSums::WorkerHost : public DatagramHosts::Host {
 public:
  // `worker`: of the switches that it sends to, which are so many, from the first of these on: that of a
  // rack, or, where the first of all is among them, those that all send to.
  WorkerHost(SwitchSums& sums, int node, std::size_t rank, std::size_t overtaken, std::size_t worker,
             std::size_t first, std::size_t lanes)
      : Host(sums.hosts_, node, rank, overtaken), sums_(sums) {
    protocol::WorkerTerms terms;
    terms.job = sums.job_.terms.job;
    terms.epoch = sums.job_.terms.epoch;
    terms.worker = static_cast<std::uint16_t>(worker);
    terms.workers = sums.job_.terms.workers;
    terms.slots = sums.job_.terms.slots;
    terms.columns = sums.job_.terms.columns;
    terms.block = sums.job_.terms.block;
    terms.rack = static_cast<std::uint16_t>(first == 0 ? 0 : first - 1);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      SwitchHost& to = *sums.switches_[first + lane];
      lanes_.push_back(std::make_unique<Lane>(*this, to, terms));
      to.answers(this);
    }
  }

  void start(const SumOperands& operands) {
    started_ = sums_.simulation_.now();
    running_ = true;
    ++sum_;
    protocol::Sum sum{operands.in,
                      operands.out,
                      sums_.count_,
                      sums_.options_.format,
                      sums_.job_.terms.block,
                      sums_.options_.sparse,
                      0,
                      static_cast<std::uint16_t>(lanes_.size())};
    if (const double p = sums_.options_.may_lose; p > 0) {
      residual_.resize(sums_.count_ * wire::bytes_in_memory(sum.format));
      sum.tolerance.ppm = protocol::millionths(p);
      sum.tolerance.residual = residual_.data();
    }
    for (const auto& lane : lanes_) {
      lane->worker.start(sum, sum_, hosts().now_ns() + DatagramHosts::kPatienceNs, hosts().now_ns());
      ++sum.lane;
    }
    rouse();
    look();
  }
  std::span<const std::byte> residual() const { return residual_; }
  protocol::WorkerCounters counters() const {
    protocol::WorkerCounters all;
    for (const auto& lane : lanes_) all += lane->worker.counters();
    return all;
  }

 private:
  struct Lane : protocol::DatagramSink {
    Lane(WorkerHost& h, DatagramHosts::Host& t, const protocol::WorkerTerms& terms)
        : host(h), to(t), worker(terms, *this) {}
    void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
      host.post(to, make(header, payload));
    }
    WorkerHost& host;
    DatagramHosts::Host& to;
    protocol::AggregationWorker worker;
  };

  void take(const Host& from, const Message& message, const Arrival&) override {
    lanes_[lanes_.size() == 1 ? 0 : from.number()]->worker.on(message.header, message.payload,
                                                              hosts().now_ns());
    look();
  }
  std::int64_t next_time_ns() const override {
    std::int64_t next = DatagramHosts::kNoTimeNs;
    for (const auto& lane : lanes_) next = std::min(next, lane->worker.next_time_ns());
    return next;
  }
  void on_time() override {
    for (const auto& lane : lanes_)
      if (lane->worker.next_time_ns() <= hosts().now_ns()) lane->worker.on_time(hosts().now_ns());
    look();
  }
  // Whether the sum has ended. The next one begins once all that is at hand is done.
  void look() {
    bool done = running_;
    for (const auto& lane : lanes_) {
      if (const auto& failure = lane->worker.failure()) sums_.fail(*failure);
      done = done && lane->worker.done();
    }
    if (!done) return;
    running_ = false;
    for (const auto& lane : lanes_)
      if (sum_ > protocol::LingerTime::kWarmUp && sums_.options_.may_lose > 0) {
        sums_.blocks_ += lane->worker.missing().blocks;
        sums_.missing_ += lane->worker.missing().own;
      }
    sums_.on_done(static_cast<int>(number()), started_);
  }

  SwitchSums& sums_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by switch
  std::vector<std::byte> residual_;
  std::uint32_t sum_ = 0;
  Picoseconds started_ = 0;
  bool running_ = false;
};

SwitchSums::SwitchSums(Simulation& simulation, const SwitchSumsOptions& options)
    : simulation_(simulation),
      options_(options),
      job_(switch_job(options, simulation.transport().options(), simulation.network().cluster().workers())),
      hosts_(simulation, options.costs, options.port),
      calls_(simulation, [this](int rank, const SumOperands& o) { workers_[at(rank)]->start(o); }) {
  const cluster::Cluster& cluster = simulation.network().cluster();
  const auto workers = at(cluster.workers());
  for (const int node : options.switches)
    if (node < cluster.workers() || at(node) >= cluster.nodes.size())
      refuse("node {} cannot be a switch that sums: workers are {}", node, workers);
  if (!options.racks.empty() && (options.switches.size() != 1 || options.racks.size() != workers))
    refuse("{} workers at switches of racks below {}: expected {} below one", options.racks.size(),
           options.switches.size(), workers);
  // What so many later ones have overtaken has been sent again since.
  const std::size_t overtaken = 4 * std::size_t{job_.terms.slots} + 64;
  const std::vector<std::vector<int>> racks = this->racks();
  for (const int node : options.switches)
    switches_.push_back(std::make_unique<SwitchHost>(*this, node, switches_.size(), overtaken,
                                                     racks.empty() ? workers : racks.size(), nullptr));
  for (std::size_t r = 0; r < racks.size(); ++r) {
    switches_.push_back(std::make_unique<SwitchHost>(*this, options.racks[at(racks[r][0])], r, overtaken,
                                                     racks[r].size(), switches_[0].get()));
    switches_[0]->answers(switches_.back().get());
  }
  workers_.resize(workers);
  const auto add = [&](int rank, std::size_t worker, std::size_t first, std::size_t lanes) {
    workers_[at(rank)] = std::make_unique<WorkerHost>(*this, rank, at(rank), overtaken, worker, first, lanes);
  };
  for (std::size_t r = 0; r < racks.size(); ++r)
    for (std::size_t w = 0; w < racks[r].size(); ++w) add(racks[r][w], w, 1 + r, 1);
  for (std::size_t rank = 0; racks.empty() && rank < workers; ++rank)
    add(static_cast<int>(rank), rank, 0, switches_.size());
  // As with `talweg switch`: from one switch to others there is none, nor to one worker alone.
  std::vector<SwitchHost*> able;
  for (std::size_t s = racks.empty() ? 0 : 1; s < switches_.size(); ++s)
    if (cluster.nodes[at(switches_[s]->node())].can_multicast && switches_[s]->senders() > 1)
      able.push_back(switches_[s].get());
  if (able.empty()) return;
  const cluster::Routes routes(cluster);
  for (SwitchHost* const host : able) host->multicasts(routes);
}

SwitchSums::~SwitchSums() = default;

CallTimes SwitchSums::run(std::span<const SumOperands> operands, std::size_t count, const Calls& calls,
                          Picoseconds horizon, Trace* trace) {
  if (operands.size() != workers_.size())
    refuse("{} vectors for a sum of {} workers", operands.size(), workers_.size());
  count_ = count;
  const bool early = !calls_.run(operands, calls, horizon, trace);
  if (calls_.count().over()) return calls_.count().take();
  const std::vector<int> needed = nodes();
  throw_not_ended(simulation_, calls_.count(), std::span(needed).first(workers_.size()), needed,
                  "all_reduce by switch", early, horizon);
}

std::vector<int> SwitchSums::nodes() const {
  std::vector<int> nodes;
  for (const auto& host : workers_) nodes.push_back(host->node());
  for (const auto& host : switches_) nodes.push_back(host->node());
  return nodes;
}

std::vector<std::vector<int>> SwitchSums::racks() const {
  std::vector<std::vector<int>> racks;
  std::map<int, std::size_t> number;  // by node
  for (std::size_t rank = 0; rank < options_.racks.size(); ++rank) {
    const auto [found, is_new] = number.emplace(options_.racks[rank], racks.size());
    if (is_new) racks.emplace_back();
    racks[found->second].push_back(static_cast<int>(rank));
  }
  return racks;
}

void SwitchSums::fail(const protocol::SumFailure& failure) const {
  throw Error(failure.code, outage_text(simulation_, nodes()) + failure.text);
}

void SwitchSums::on_done(int rank, Picoseconds started) {
  ended_.push_back({rank, started, simulation_.now()});
  calls_.ended(rank, started);
}

protocol::WorkerCounters SwitchSums::worker_counters(int rank) const {
  return workers_[at(rank)]->counters();
}

std::span<const std::byte> SwitchSums::residual(int rank) const {
  return workers_[at(rank)]->residual();
}

protocol::SwitchCounters SwitchSums::switch_counters(std::size_t number) const {
  return switches_[number]->counters();
}

}  // namespace talweg::sim
