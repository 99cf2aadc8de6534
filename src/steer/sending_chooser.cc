#include "steer/sending_chooser.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

namespace talweg::steer {
namespace {

constexpr double kWordBytes = 4;
// Longer than this nothing waits: networks and models change.
constexpr int kMostSteps = 256;

}  // namespace

SendingChooser::SendingChooser(std::size_t elements, const SendingCosts& costs)
    : elements_(elements), costs_(costs) {
  if (costs.ranks < 1) refuse("what gradients cost to send was asked for {} ranks", costs.ranks);
  if (!(costs.bytes_per_second > 0) || !(costs.latency_s >= 0))
    refuse("gradients are sent at more than 0 bytes/s with a latency of 0 or more, not at {} with {} s",
           costs.bytes_per_second, costs.latency_s);
  if (costs.block == 0) refuse("a block of gradients has at least one element");
}

double SendingChooser::seconds(Sending sending, double own, double of_all) const {
  const double others = costs_.ranks - 1;
  const double dense = kWordBytes * static_cast<double>(elements_) / costs_.bytes_per_second;
  // An element goes with its index, a block with one for all of its elements.
  const double words = sending == Sending::elements ? 2 : 1 + 1.0 / costs_.block;
  if (sending == Sending::dense)
    return dense * (costs_.aggregator ? 1 : 2 * others / costs_.ranks) + 2 * costs_.latency_s;
  const double part = costs_.aggregator ? std::max(own, of_all) : others * own;
  return dense * words * part + 3 * costs_.latency_s;
}

bool SendingChooser::is_dear(std::size_t words_of_all) const {
  const double received = static_cast<double>(words_of_all) * (costs_.ranks - 1) / costs_.ranks;
  const double dense = 2.0 * (costs_.ranks - 1) / costs_.ranks * static_cast<double>(elements_);
  return received > 2 * dense;
}

void SendingChooser::update(Density& density, double of_all, std::optional<double> own) const {
  density.of_all = of_all;
  if (own) {
    density.own = *own;
    if (of_all > 0) density.overlap = *own / of_all;
  } else if (density.overlap > 0) {
    density.own = density.overlap * of_all;
  } else {
    density.own = 1 - std::pow(1 - std::min(of_all, 1.0), 1.0 / costs_.ranks);
  }
}

void SendingChooser::observe(const SendingSeen& seen) {
  if (elements_ == 0) return;
  const auto elements = static_cast<double>(elements_);
  const double blocks = std::ceil(elements / costs_.block);
  const auto part = [](std::optional<double> count, double of) {
    return count ? std::optional(*count / of) : std::nullopt;
  };
  update(of_elements_, static_cast<double>(seen.union_elements) / elements,
         part(seen.own_elements, elements));
  // Every parameter's last block may be a short one: there may be some more blocks than elements make.
  update(of_blocks_, std::min(1.0, static_cast<double>(seen.union_blocks) / blocks),
         part(seen.own_blocks, blocks));

  std::array<double, kSendings> times{};
  for (std::size_t i = 0; i < kSendings; ++i) {
    const auto sending = static_cast<Sending>(i);
    const Density& density = sending == Sending::blocks ? of_blocks_ : of_elements_;
    times[i] = seconds(sending, density.own, density.of_all);
  }
  const auto best = static_cast<Sending>(std::min_element(times.begin(), times.end()) - times.begin());
  const auto time_of = [&](Sending sending) { return times[static_cast<std::size_t>(sending)]; };
  // Lists have work of their own: densely is how a bucket goes unless they gain something.
  if (time_of(best) >= (best == Sending::dense ? 1 : kGain) * time_of(now_)) {
    won_in_a_row_ = 0;
    return;
  }
  won_in_a_row_ = best == challenger_ ? won_in_a_row_ + 1 : 1;
  challenger_ = best;
  if (won_in_a_row_ < needed_[static_cast<std::size_t>(best)]) return;
  if (now_ != Sending::dense) {
    int& needed = needed_[static_cast<std::size_t>(now_)];
    needed = std::min(2 * needed, kMostSteps);
  }
  now_ = best;
  won_in_a_row_ = 0;
}

}  // namespace talweg::steer
