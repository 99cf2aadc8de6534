#include "study/simulate_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace talweg::study {

using std::chrono::milliseconds;

Progress::Progress(bool always) : line_(milliseconds(500), milliseconds(always ? 500 : 10'000)) {}

void Progress::plan(const std::string& what) {
  planning_.emplace(line_, "planning " + what);
}

void Progress::look_for_bound() {
  if (line_.due()) line_.say(fmt::format("looking for the bound: {}", wait_text(line_.seconds())));
}

void Progress::end() {
  planning_.reset();
  share_done_ = {};
  line_.end();
}

void Progress::begin(sim::Simulation& simulation, const std::string& title) {
  planning_.reset();
  title_ = title;
  bytes_ = end_ = 0;
  share_done_ = {};
  line_.begin();
  simulation.watch([this, &simulation] { look(simulation); });
}

double Progress::share_done(const sim::Simulation& simulation) const {
  if (end_ > 0) return static_cast<double>(simulation.now()) / static_cast<double>(end_);
  if (share_done_) return share_done_();
  if (bytes_ <= 0) return 0;
  const sim::Transport& transport = simulation.transport();
  std::int64_t delivered = 0;
  for (sim::FlowId flow = 0; flow < transport.flows(); ++flow) delivered += transport.delivered_bytes(flow);
  return std::min(1.0, static_cast<double>(delivered) / static_cast<double>(bytes_));
}

void Progress::look(const sim::Simulation& simulation) {
  if (planning_) {
    planning_.reset();
    line_.begin();
  }
  if (!line_.due()) return;
  const double spent = line_.seconds();
  const double share = share_done(simulation);
  const auto hops = static_cast<double>(simulation.network().counters().link_hops);
  std::string text = fmt::format("{}: {} simulated, {:.1f} M link-hops/s", title_,
                                 to_string(Nanoseconds{simulation.now() / 1000}), hops / spent / 1e6);
  if (share > 0)
    text += fmt::format(", {:.0f} % done, about {} left", share * 100, wait_text(spent * (1 / share - 1)));
  line_.say(text);
}

}  // namespace talweg::study
