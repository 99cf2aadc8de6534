// A page about simulated runs that needs nothing else: how much links were used and what waited in front of
// them over time, as pictures in SVG, and the table.
#pragma once

#include <string>

#include "sim/sampler.h"

namespace talweg::cli {

class SimulatePage {
 public:
  static constexpr std::size_t kLinksShown = 32;

  void add(const std::string& title, const sim::Simulation& simulation, const sim::Sampler& sampler);
  // Throws Error{system}.
  void write(const std::string& path, const std::string& network, const std::string& table) const;

 private:
  std::string sections_;
};

std::string html_escaped(const std::string& text);

}  // namespace talweg::cli
