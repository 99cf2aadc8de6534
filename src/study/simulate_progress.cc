#include "study/simulate_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/printable.h"

namespace talweg::study {

using std::chrono::milliseconds;

Progress::Progress(bool always)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      patience_(always || terminal_ ? milliseconds(500) : milliseconds(10'000)) {}

void Progress::begin(sim::Simulation& simulation, const std::string& title) {
  title_ = printable(title);
  bytes_ = end_ = 0;
  begun_ = last_ = Clock::now();
  simulation.watch([this, &simulation] { look(simulation); });
}

void Progress::end() {
  if (written_) fmt::print(stderr, "\r\033[K");
  written_ = false;
}

double Progress::share_done(const sim::Simulation& simulation) const {
  if (end_ > 0) return static_cast<double>(simulation.now()) / static_cast<double>(end_);
  if (bytes_ <= 0) return 0;
  const sim::Transport& transport = simulation.transport();
  std::int64_t delivered = 0;
  for (sim::FlowId flow = 0; flow < transport.flows(); ++flow) delivered += transport.delivered_bytes(flow);
  return std::min(1.0, static_cast<double>(delivered) / static_cast<double>(bytes_));
}

void Progress::look(const sim::Simulation& simulation) {
  const Clock::time_point now = Clock::now();
  if (now - last_ < patience_) return;
  last_ = now;
  const double spent = std::chrono::duration<double>(now - begun_).count();
  const double share = share_done(simulation);
  const auto hops = static_cast<double>(simulation.network().counters().link_hops);
  std::string text = fmt::format("{}: {} simulated, {:.1f} M link-hops/s", title_,
                                 to_string(Nanoseconds{simulation.now() / 1000}), hops / spent / 1e6);
  if (share > 0)
    text += fmt::format(", {:.0f} % done, about {} left", share * 100, wait_text(spent * (1 / share - 1)));
  if (terminal_)
    fmt::print(stderr, "\r\033[K{}", text);
  else
    fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
  written_ = terminal_;
}

std::string wait_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace talweg::study
