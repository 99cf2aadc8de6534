#include "sim/sampler.h"

#include <algorithm>

namespace talweg::sim {

namespace {
constexpr Picoseconds kFirstStep = 1'000'000;  // a microsecond: a packet or so at 10 Gbit/s
}

Sampler::Sampler(Simulation& simulation)
    : simulation_(simulation),
      step_(kFirstStep),
      links_(simulation.network().cluster().links.size()),
      before_(links_.size()) {
  simulation.every(step_, [this] {
    sample();
    return step_;
  });
}

void Sampler::sample() {
  simulation_.transport().count(simulation_.now());
  const Network& network = simulation_.network();
  const Picoseconds now = simulation_.now();
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const std::int64_t sent = network.sent_bytes(static_cast<int>(l), now);
    links_[l].sent_bytes.push_back(sent - before_[l]);
    links_[l].queued_bytes.push_back(network.queued_bytes(static_cast<int>(l), now));
    before_[l] = sent;
  }
  if (on_sample_) on_sample_();
  if (++samples_ == 2 * kMostSamples) halve();
}

void Sampler::halve() {
  samples_ /= 2;
  step_ *= 2;
  for (Series& s : links_) {
    for (std::size_t i = 0; i < samples_; ++i) {
      s.sent_bytes[i] = s.sent_bytes[2 * i] + s.sent_bytes[2 * i + 1];
      s.queued_bytes[i] = std::max(s.queued_bytes[2 * i], s.queued_bytes[2 * i + 1]);
    }
    s.sent_bytes.resize(samples_);
    s.queued_bytes.resize(samples_);
  }
}

double Sampler::use(int link, std::size_t sample) const {
  const cluster::Link& l = simulation_.network().cluster().links[static_cast<std::size_t>(link)];
  return static_cast<double>(series(link).sent_bytes[sample]) /
         (l.capacity.bytes_per_second() * seconds(step_));
}

}  // namespace talweg::sim
