// Sampler: what the links of a running simulation carried over time, and what waited in front of them. It
// looks at them now and then and changes nothing.
//
//   Sampler sampler(simulation);
//   simulation.run();
//   sampler.series(link)            // one value for each step of sampler.step()
#pragma once

#include <cstdint>
#include <vector>

#include "sim/simulation.h"

namespace talweg::sim {

class Sampler {
 public:
  // Nobody knows how long a run will be: whenever there are twice as many samples as a picture shows, two
  // become one.
  static constexpr std::size_t kMostSamples = 256;

  struct Series {
    std::vector<std::int64_t> sent_bytes;    // in each step
    std::vector<std::int64_t> queued_bytes;  // the most that was seen in each step
  };

  // Outlives the run.
  explicit Sampler(Simulation& simulation);

  Picoseconds step() const { return step_; }
  std::size_t samples() const { return samples_; }
  const Series& series(int link) const { return links_[static_cast<std::size_t>(link)]; }
  // Of what could have been sent in a step.
  double use(int link, std::size_t sample) const;
  // Called with every sample that is taken, however many are kept.
  void on_sample(std::function<void()> call) { on_sample_ = std::move(call); }

 private:
  void sample();
  void halve();

  Simulation& simulation_;
  Picoseconds step_;
  std::size_t samples_ = 0;
  std::vector<Series> links_;
  std::vector<std::int64_t> before_;  // bytes sent by each link up to the last sample
  std::function<void()> on_sample_;
};

}  // namespace talweg::sim
