#include "sim/matrix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sim/outage.h"

namespace talweg::sim {

MatrixRun::MatrixRun(Simulation& simulation, const Matrix& matrix, Trace* trace, std::function<void()> on_end)
    : simulation_(simulation),
      trace_(trace),
      on_end_(std::move(on_end)),
      flows_(matrix.connections.size()),
      pulls_(matrix.triggers),
      waiting_(matrix.triggers.size()),
      left_(flows_.size()) {
  const int workers = simulation.network().cluster().workers();
  if (matrix.nodes > workers) refuse("the matrix is for {} hosts, the network has {}", matrix.nodes, workers);
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Connection& c = matrix.connections[i];
    flows_[i] = {c, kNever, kNever, {}};
    const FlowId id = simulation.open({c.from, c.to, std::min(c.priority, kPriorities - 1), c.route}, *this);
    if (i == 0) first_ = id;
    if (c.trigger >= 0)
      waiting_[static_cast<std::size_t>(c.trigger)].push_back(i);
    else
      simulation.at(c.start, [this, i] { start(i); });
  }
}

MatrixRun::~MatrixRun() {
  simulation_.forget(*this);
}

std::vector<FlowResult> MatrixRun::take() {
  for (std::size_t i = 0; i < flows_.size(); ++i)
    flows_[i].counters = simulation_.transport().counters(first_ + static_cast<FlowId>(i));
  return std::move(flows_);
}

void MatrixRun::start(std::size_t index) {
  FlowResult& f = flows_[index];
  const FlowId flow = first_ + static_cast<FlowId>(index);
  f.started = simulation_.now();
  simulation_.transport().notify_at(flow, f.connection.bytes);
  simulation_.transport().write(flow, f.connection.bytes, simulation_.now());
}

void MatrixRun::on_delivered(FlowId flow, std::int64_t, Picoseconds now) {
  FlowResult& f = flows_[flow - first_];
  f.ended = now;
  if (trace_ != nullptr)
    trace_->transfer(f.connection.from, f.connection.to, fmt::format("flow {}", f.connection.id),
                     f.connection.bytes, f.started, now);
  pull(f.connection.receive_done);
  pull(f.connection.send_done);  // an acknowledgement's way later in truth
  if (--left_ == 0) on_end_();
}

void MatrixRun::pull(int trigger) {
  if (trigger < 0 || --pulls_[static_cast<std::size_t>(trigger)] != 0) return;
  for (const std::size_t index : waiting_[static_cast<std::size_t>(trigger)])
    simulation_.at(simulation_.now(), [this, index] { start(index); });
}

std::string MatrixRun::missing() const {
  constexpr std::size_t kNamed = 8;
  std::string names;
  std::size_t count = 0;
  std::vector<int> ends;
  for (const FlowResult& f : flows_) {
    if (f.ended != kNever) continue;
    ends.insert(ends.end(), {f.connection.from, f.connection.to});
    if (++count <= kNamed)
      names += fmt::format("{}{} ({}->{}{})", names.empty() ? "" : ", ", f.connection.id, f.connection.from,
                           f.connection.to, f.started == kNever ? ", never started" : "");
  }
  return outage_text(simulation_, std::move(ends)) + fmt::format("{} of {} flows had not ended: {}{}", count,
                                                                 flows_.size(), names,
                                                                 count > kNamed ? " and others" : "");
}

std::string horizon_text(Picoseconds horizon) {
  return horizon == kNever ? "nothing is left to happen"
                           : fmt::format("at the horizon of {}", to_string(Nanoseconds{horizon / 1000}));
}

std::vector<FlowResult> run_matrix(Simulation& simulation, const Matrix& matrix, Picoseconds horizon,
                                   Trace* trace) {
  MatrixRun run(simulation, matrix, trace, [&simulation] { simulation.stop(); });
  if (!run.done()) simulation.run(horizon);
  if (!run.done()) throw_error(ErrorCode::timeout, "{}: {}", horizon_text(horizon), run.missing());
  return run.take();
}

Picoseconds completion_percentile(const std::vector<FlowResult>& flows, double share) {
  if (flows.empty()) return 0;
  std::vector<Picoseconds> took;
  for (const FlowResult& f : flows) took.push_back(f.ended - f.started);
  std::ranges::sort(took);
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(took.size())));
  return took[std::clamp<std::size_t>(rank, 1, took.size()) - 1];
}

}  // namespace talweg::sim
