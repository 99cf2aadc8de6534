#include "sim/workload_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/fail.h"
#include "forest/cost.h"
#include "forest/look_ahead.h"
#include "forest/planner.h"
#include "sim/collectives.h"
#include "sim/outage.h"

namespace talweg::sim {

namespace {

// Of background datagrams; the transport has no ports.
constexpr std::uint32_t kBackgroundPort = 1;
constexpr std::uint32_t kFirstBoundedPort = 4713;  // of the first group; each has its own

std::shared_ptr<const forest::Forest> plan(const WorkloadStep& step, int ranks,
                                           const cluster::Cluster& network) {
  const auto size = static_cast<std::int64_t>(size_of(step.type));
  const forest::Request request = forest::even_request(*step.op, ranks, step.root, step.bytes / size, size);
  if (step.algorithm.empty())
    return std::make_shared<const forest::Forest>(forest::plan_best(request, network));
  auto forest = std::make_shared<forest::Forest>(forest::find_planner(step.algorithm).plan(request, network));
  forest::choose_chunks(*forest, network);
  return forest;
}

// One group: each rank goes through the steps by itself; collectives hold it to the others.
class GroupRun {
 public:
  GroupRun(Simulation& simulation, const WorkloadGroup& group, const WorkloadOptions& options, int index,
           std::function<void()> on_end)
      : simulation_(simulation),
        group_(group),
        options_(options),
        index_(index),
        ranks_(simulation, ranks_options(options, group, index)),
        on_end_(std::move(on_end)) {
    outcome_.name = group.name;
    outcome_.ranks = ranks_.size();
    outcome_.started = picoseconds(group.start);
    outcome_.of_step.resize(group.steps.size());
    const cluster::Cluster network = cluster::restrict_to(simulation.network().cluster(), group.nodes);
    for (const WorkloadStep& step : group.steps) {
      sums_.push_back(0);
      if (step.algorithm == kBounded) {
        add_bounded(step, index);
        continue;
      }
      const auto forest = step.op ? plan(step, ranks_.size(), network) : nullptr;
      plans_.emplace_back();
      if (forest)
        plans_.back() = protocol::make_plans(forest, static_cast<std::uint32_t>(plans_.size()),
                                             forest::look_ahead(forest->request, network));
      outcome_.algorithms.push_back(
          forest ? forest::plan_title(forest->planner, forest::aggregator_names(*forest, network)) : "");
      memory_.push_back(forest ? std::make_unique<SharedOperands>(*forest) : nullptr);
      paces_.push_back(forest ? paces_for(simulation, ranks_, *forest) : std::vector<forest::Pace>());
    }
    ranks_.help([this](int node, const wire::Signature& signature) {
      const auto& plan = plans_[signature.plan - 1][static_cast<std::size_t>(node)];
      return operation_for(plan, signature.type, ReduceOp::sum, nullptr, nullptr, false);
    });
    ranks_.on_end([this](const CollectiveResult& result) { ended(result); });
    if (options.trace != nullptr)
      ranks_.on_frame([this](const FrameNote& f) {
        if (f.header.length > 0)
          options_.trace->transfer(f.from, f.to, group_.name, f.header.length, f.sent, f.received);
      });
    for (int r = 0; r < ranks_.size(); ++r) {
      members_.push_back({Random(options.seed, (static_cast<std::uint64_t>(index) << 32) +
                                                   static_cast<std::uint64_t>(r) + (1ULL << 62))});
      simulation.at(picoseconds(group.start), [this, r] { step(r); });
    }
    iteration_ends_.resize(static_cast<std::size_t>(group.repeat));
  }

  bool done() const { return left() == 0; }
  std::string missing() const {
    return outage_text(simulation_, needed()) +
           fmt::format("group {} had not ended: {} of {} ranks go on", group_.name, left(), ranks_.size());
  }
  GroupOutcome take() {
    Picoseconds before = outcome_.started;
    for (const Picoseconds end : iteration_ends_) {
      outcome_.iterations.push_back(end - before);
      before = end;
    }
    outcome_.ended = before;
    if (bounded_) outcome_.losses = bounded_->losses();
    const Picoseconds n = ranks_.size();
    for (std::size_t s = 0; s < outcome_.of_step.size(); ++s) {
      if (group_.steps[s].op) outcome_.communication += outcome_.of_step[s] / n;
      outcome_.of_step[s] /= n * group_.repeat;
    }
    return std::move(outcome_);
  }

 private:
  struct Member {
    Random random;
    int iteration = 0;
    std::size_t step = 0;
    Picoseconds began = 0;
  };

  static RanksOptions ranks_options(const WorkloadOptions& options, const WorkloadGroup& group, int index) {
    RanksOptions o = options.ranks;
    o.carry_payloads = false;
    o.nodes = group.nodes;
    o.priority = group.priority;
    o.group = static_cast<std::uint32_t>(index) + 1;
    return o;
  }

  void add_bounded(const WorkloadStep& step, int index) {
    if (!bounded_) {
      BoundedSumsOptions how;
      how.p = group_.may_lose;
      how.p_sender = group_.may_lose_sender;
      how.p_call = group_.may_lose_call;
      how.classes.droppable = group_.droppable;
      how.queues = group_.queues;
      how.type = step.type;
      how.costs = options_.ranks.costs;
      how.nodes = group_.nodes;
      how.port = kFirstBoundedPort + static_cast<std::uint32_t>(index);
      bounded_ = std::make_unique<BoundedSums>(simulation_, how);
      bounded_->on_end([this](int rank) { next(rank); });
    }
    const auto size = static_cast<std::int64_t>(size_of(step.type));
    const std::int64_t count = step.bytes / size;
    sums_.back() = bounded_->add(static_cast<std::size_t>(count), step.depth);
    memory_.push_back(std::make_unique<SharedOperands>(count, count, size));
    plans_.emplace_back();
    outcome_.algorithms.emplace_back(kBounded);
    paces_.emplace_back();
  }

  // The ranks' nodes, and those that sum for them.
  std::vector<int> needed() const {
    std::vector<int> nodes = group_.nodes;
    for (const auto& plans : plans_) {
      if (plans.empty()) continue;
      for (const int node : forest::aggregators_of(*plans.front()->forest))
        nodes.push_back(ranks_.node(node));
    }
    return nodes;
  }
  int left() const {
    return static_cast<int>(
        std::ranges::count_if(members_, [this](const Member& m) { return m.iteration < group_.repeat; }));
  }

  void step(int rank) {
    Member& m = members_[static_cast<std::size_t>(rank)];
    const WorkloadStep& s = group_.steps[m.step];
    m.began = simulation_.now();
    if (!s.op) {
      const double stretch = 1 + group_.jitter * roughly_normal(m.random);
      const auto took =
          static_cast<Picoseconds>(static_cast<double>(picoseconds(s.compute)) * std::max(stretch, 0.0));
      simulation_.at(simulation_.now() + took, [this, rank] { next(rank); });
      return;
    }
    const SharedOperands& memory = *memory_[m.step];
    if (s.algorithm == kBounded) return bounded_->start(rank, sums_[m.step], {memory.in(), memory.out()});
    ranks_.start(rank,
                 operation_for(plans_[m.step][static_cast<std::size_t>(rank)], s.type, ReduceOp::sum,
                               memory.in(), memory.out(), false),
                 simulation_.now(), paces_[m.step]);
  }
  void ended(const CollectiveResult& result) {
    if (!result.outcome.ok) throw Error(result.outcome.code, result.outcome.text);
    next(result.rank);
  }
  void next(int rank) {
    Member& m = members_[static_cast<std::size_t>(rank)];
    const Picoseconds now = simulation_.now();
    outcome_.of_step[m.step] += now - m.began;
    if (options_.on_step) {
      const auto turn =
          static_cast<std::int64_t>(group_.steps.size()) * m.iteration + static_cast<std::int64_t>(m.step);
      options_.on_step({ranks_.node(rank), !group_.steps[m.step].op, m.began, now, index_, turn});
    }
    if (options_.trace != nullptr) {
      const WorkloadStep& s = group_.steps[m.step];
      options_.trace->span(ranks_.node(rank),
                           fmt::format("{}: {}", group_.name, s.op ? talweg::name(*s.op) : "compute"),
                           m.began, now);
    }
    if (++m.step == group_.steps.size()) {
      m.step = 0;
      Picoseconds& end = iteration_ends_[static_cast<std::size_t>(m.iteration)];
      end = std::max(end, now);
      if (++m.iteration == group_.repeat) {
        if (done()) on_end_();
        return;
      }
    }
    // Not at once: the session is in the middle of ending the last one.
    simulation_.at(now, [this, rank] { step(rank); });
  }

  Simulation& simulation_;
  const WorkloadGroup& group_;
  const WorkloadOptions& options_;
  const int index_;
  Ranks ranks_;
  std::function<void()> on_end_;
  std::vector<std::vector<std::shared_ptr<const protocol::Plan>>> plans_;  // by step and rank
  std::vector<std::unique_ptr<SharedOperands>> memory_;
  std::vector<std::vector<forest::Pace>> paces_;  // by step
  std::unique_ptr<BoundedSums> bounded_;          // null: no step loses anything
  std::vector<std::size_t> sums_;                 // of it, by step
  std::vector<Member> members_;
  std::vector<Picoseconds> iteration_ends_;
  GroupOutcome outcome_;
};

// Datagrams or bursts of one sender at random times.
class Background : private FlowClient {
 public:
  Background(Simulation& simulation, const BackgroundTraffic& traffic, int from, std::uint64_t seed,
             std::uint64_t stream, BackgroundOutcome& outcome, std::uint32_t index)
      : simulation_(simulation),
        traffic_(traffic),
        from_(from),
        random_(seed, stream),
        outcome_(outcome),
        index_(index),
        mean_(TransmitTime(traffic.rate)
                  .of(traffic.burst_bytes > 0 ? traffic.burst_bytes : traffic.packet_bytes)) {
    simulation.every(std::max<Picoseconds>(picoseconds(traffic.start) + gap(), 1), [this] { return send(); });
  }
  ~Background() override { simulation_.forget(*this); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  Picoseconds gap() { return static_cast<Picoseconds>(static_cast<double>(mean_) * exponential(random_)); }
  Picoseconds send() {
    if (traffic_.end.value >= 0 && simulation_.now() > picoseconds(traffic_.end)) return 0;
    int to = traffic_.to;
    if (to < 0) {
      const int workers = simulation_.network().cluster().workers();
      to = static_cast<int>(random_.below(static_cast<std::uint64_t>(workers) - 1));
      if (to >= from_) ++to;
    }
    ++outcome_.sent;
    if (traffic_.burst_bytes > 0)
      send_burst(to);
    else
      send_datagram(to);
    return std::max<Picoseconds>(gap(), 1);
  }
  void send_datagram(int to) {
    Simulation::Datagram d;
    d.from = from_;
    d.to = to;
    d.port = kBackgroundPort;
    d.bytes = traffic_.packet_bytes;
    d.priority = static_cast<std::uint8_t>(traffic_.priority);
    d.spread = static_cast<std::uint32_t>(random_.next());
    d.number = index_;
    simulation_.send(d);
  }
  // Each is a connection of its own.
  void send_burst(int to) {
    const FlowId flow = simulation_.open({from_, to, traffic_.priority, kNoRoute}, *this);
    begun_[flow] = simulation_.now();
    simulation_.transport().notify_at(flow, traffic_.burst_bytes);
    simulation_.transport().write(flow, traffic_.burst_bytes, simulation_.now());
  }
  void on_delivered(FlowId flow, std::int64_t, Picoseconds now) override {
    ++outcome_.arrived;
    outcome_.took.push_back(now - begun_[flow]);
    begun_.erase(flow);
  }
  void on_writable(FlowId, Picoseconds) override {}

  Simulation& simulation_;
  const BackgroundTraffic& traffic_;
  const int from_;
  Random random_;
  BackgroundOutcome& outcome_;
  const std::uint32_t index_;
  const Picoseconds mean_;
  std::map<FlowId, Picoseconds> begun_;  // bursts on their way
};

}  // namespace

double exponential(Random& random) {
  // Von Neumann (1951): the first of a falling run of odd length, plus the number of even runs before.
  for (double whole = 0;; whole += 1) {
    const double first = random.uniform();
    double last = first;
    int length = 1;
    for (double next = random.uniform(); next < last; next = random.uniform(), ++length) last = next;
    if (length % 2 == 1) return whole + first;
  }
}

double roughly_normal(Random& random) {
  double sum = -6;  // twelve uniform ones have variance 1
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

void schedule(Simulation& simulation, const std::vector<NetworkChange>& changes, Trace* trace) {
  for (const NetworkChange& change : changes)
    simulation.at(picoseconds(change.at), [&simulation, change, trace] {
      if (change.node >= 0)
        simulation.set_node(change.node, change.up);
      else
        simulation.set_links(change.links, change.up);
      if (trace == nullptr) return;
      const Network& network = simulation.network();
      const int node = change.node >= 0
                           ? change.node
                           : network.cluster().links[static_cast<std::size_t>(change.links[0])].from;
      const std::string what = change.node >= 0 ? network.cluster().nodes[static_cast<std::size_t>(node)].name
                                                : link_name(network.cluster(), change.links[0]);
      trace->mark(node, (change.up ? "repaired: " : "failed: ") + what, simulation.now());
    });
}

WorkloadOutcome run_workload(Simulation& simulation, const Workload& workload,
                             const WorkloadOptions& options) {
  WorkloadOutcome outcome;
  Network& network = simulation.network();
  std::size_t left = workload.groups.size();
  schedule(simulation, workload.changes, options.trace);

  Matrix matrix;
  matrix.nodes = network.cluster().workers();
  for (const Workload::Flow& flow : workload.flows) {
    matrix.connections.push_back(flow.connection);
    if (!flow.route.empty()) matrix.connections.back().route = network.add_route(flow.route);
  }
  std::unique_ptr<MatrixRun> flows;
  const auto ended = [&] {
    if (left == 0 && (!flows || flows->done())) simulation.stop();
  };
  if (!matrix.connections.empty())
    flows = std::make_unique<MatrixRun>(simulation, matrix, options.trace, ended);

  std::vector<std::unique_ptr<GroupRun>> groups;
  for (std::size_t g = 0; g < workload.groups.size(); ++g)
    groups.push_back(
        std::make_unique<GroupRun>(simulation, workload.groups[g], options, static_cast<int>(g), [&] {
          --left;
          ended();
        }));

  outcome.background.resize(workload.background.size());
  for (int w = 0; w < network.cluster().workers() && !workload.background.empty(); ++w)
    simulation.bind(w, kBackgroundPort,
                    [&](const Packet& packet) { ++outcome.background[packet.number].arrived; });
  std::vector<std::unique_ptr<Background>> background;
  for (std::size_t b = 0; b < workload.background.size(); ++b)
    for (const int from : workload.background[b].from)
      background.push_back(std::make_unique<Background>(
          simulation, workload.background[b], from, options.seed,
          (1ULL << 61) + (static_cast<std::uint64_t>(b) << 32) + static_cast<std::uint64_t>(from),
          outcome.background[b], static_cast<std::uint32_t>(b)));

  const bool endless = groups.empty() && !flows;
  if (endless) {
    if (options.horizon == kNever)
      refuse("background traffic alone goes on for ever: give a horizon at which the run ends");
    simulation.at(options.horizon, [&] { simulation.stop(); });
  }
  simulation.run(options.horizon);
  std::string missing;
  for (const auto& group : groups)
    if (!group->done()) missing += (missing.empty() ? "" : "; ") + group->missing();
  if (flows && !flows->done()) missing += (missing.empty() ? "" : "; ") + flows->missing();
  if (!missing.empty()) throw_error(ErrorCode::timeout, "{}: {}", horizon_text(options.horizon), missing);
  for (const auto& group : groups) outcome.groups.push_back(group->take());
  if (flows) outcome.flows = flows->take();
  return outcome;
}

}  // namespace talweg::sim
