#include "sim/matrix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "talweg/error.h"

namespace talweg::sim {

namespace {

class MatrixRun : private FlowClient {
 public:
  MatrixRun(Simulation& simulation, const Matrix& matrix)
      : simulation_(simulation), pulls_(matrix.triggers), waiting_(matrix.triggers.size()) {
    flows_.resize(matrix.connections.size());
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      const Connection& c = matrix.connections[i];
      flows_[i] = {c, kNever, kNever, {}};
      simulation.transport().open({c.from, c.to, std::min(c.priority, kPriorities - 1), kNoRoute});
      if (c.trigger >= 0)
        waiting_[static_cast<std::size_t>(c.trigger)].push_back(static_cast<FlowId>(i));
      else
        simulation.at(c.start, [this, i] { start(static_cast<FlowId>(i)); });
    }
    left_ = flows_.size();
    simulation.set_client(this);
  }
  ~MatrixRun() override { simulation_.set_client(nullptr); }

  std::vector<FlowResult> run(Picoseconds horizon) {
    if (left_ > 0) simulation_.run(horizon);
    if (left_ > 0) complain();
    for (std::size_t i = 0; i < flows_.size(); ++i)
      flows_[i].counters = simulation_.transport().counters(static_cast<FlowId>(i));
    return std::move(flows_);
  }

 private:
  void start(FlowId flow) {
    FlowResult& f = flows_[flow];
    f.started = simulation_.now();
    simulation_.transport().notify_at(flow, f.connection.bytes);
    simulation_.transport().write(flow, f.connection.bytes, simulation_.now());
  }
  void on_delivered(FlowId flow, std::int64_t, Picoseconds now) override {
    FlowResult& f = flows_[flow];
    f.ended = now;
    pull(f.connection.receive_done);
    pull(f.connection.send_done);  // an acknowledgement's way later in truth
    if (--left_ == 0) simulation_.stop();
  }
  void on_writable(FlowId, Picoseconds) override {}
  void pull(int trigger) {
    if (trigger < 0 || --pulls_[static_cast<std::size_t>(trigger)] != 0) return;
    for (const FlowId flow : waiting_[static_cast<std::size_t>(trigger)])
      simulation_.at(simulation_.now(), [this, flow] { start(flow); });
  }
  [[noreturn]] void complain() const {
    constexpr std::size_t kNamed = 8;
    std::string names;
    std::size_t count = 0;
    for (const FlowResult& f : flows_)
      if (f.ended == kNever && ++count <= kNamed)
        names += fmt::format("{}{} ({}->{}{})", names.empty() ? "" : ", ", f.connection.id, f.connection.from,
                             f.connection.to, f.started == kNever ? ", never started" : "");
    throw Error(ErrorCode::timeout,
                fmt::format("{} of {} flows had not ended at {}: {}{}", count, flows_.size(),
                            to_string(Nanoseconds{simulation_.now() / kPicosecondsPerNanosecond}), names,
                            count > kNamed ? " and others" : ""));
  }

  Simulation& simulation_;
  std::vector<FlowResult> flows_;
  std::vector<int> pulls_;                    // that each trigger still needs
  std::vector<std::vector<FlowId>> waiting_;  // for each trigger
  std::size_t left_ = 0;
};

}  // namespace

std::vector<FlowResult> run_matrix(Simulation& simulation, const Matrix& matrix, Picoseconds horizon) {
  const int workers = simulation.network().cluster().workers();
  if (matrix.nodes > workers)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the matrix is for {} hosts, the network has {}", matrix.nodes, workers));
  return MatrixRun(simulation, matrix).run(horizon);
}

Picoseconds completion_percentile(const std::vector<FlowResult>& flows, double share) {
  if (flows.empty()) return 0;
  std::vector<Picoseconds> took;
  for (const FlowResult& f : flows) took.push_back(f.ended - f.started);
  std::sort(took.begin(), took.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(took.size())));
  return took[std::clamp<std::size_t>(rank, 1, took.size()) - 1];
}

NetworkSummary summarise(const Network& network, Picoseconds duration) {
  const cluster::Cluster& cluster = network.cluster();
  NetworkSummary s;
  double sum = 0;
  int used = 0;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const cluster::Link& link = cluster.links[l];
    const LinkCounters c = network.counters(static_cast<int>(l));
    const auto link_name = [&] {
      return cluster.nodes[static_cast<std::size_t>(link.from)].name + "->" +
             cluster.nodes[static_cast<std::size_t>(link.to)].name;
    };
    const double could = link.capacity.bytes_per_second() * seconds(duration);
    const double utilisation = could > 0 ? static_cast<double>(c.bytes) / could : 0;
    if (c.packets > 0) {
      sum += utilisation;
      ++used;
    }
    if (utilisation > s.busiest_utilisation) {
      s.busiest_utilisation = utilisation;
      s.busiest_link = link_name();
    }
    if (c.most_queued_bytes > s.most_queued_bytes) {
      s.most_queued_bytes = c.most_queued_bytes;
      s.most_queued_link = link_name();
    }
    s.dropped += std::accumulate(c.dropped.begin(), c.dropped.end(), std::uint64_t{0});
    s.marked += c.marked;
    s.trimmed += c.trimmed;
    s.lost += c.lost;
  }
  s.mean_utilisation = used > 0 ? sum / used : 0;
  return s;
}

}  // namespace talweg::sim
