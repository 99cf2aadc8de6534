// A page about simulated runs that needs nothing else: how much links were used and what waited in front of
// them over time, as pictures in SVG, and the table.
#pragma once

#include <string>

#include "sim/sampler.h"

namespace talweg::study {

class SimulatePage {
 public:
  static constexpr std::size_t kLinksShown = 32;

  void add(const std::string& title, const sim::Simulation& simulation, const sim::Sampler& sampler);
  // XHTML. `table` is plain text.
  std::string text(const std::string& network, const std::string& table) const;

 private:
  std::string sections_;
};

}  // namespace talweg::study
