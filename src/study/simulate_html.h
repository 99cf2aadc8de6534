// A page about simulated runs that needs nothing else: numbers first, the network over time, what ranks or
// flows did, and the table. What it shows was recorded while the runs went on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/sampler.h"
#include "study/network_layout.h"
#include "study/page_run.h"

namespace talweg::study {

class SimulatePage {
 public:
  static constexpr std::size_t kLinksShown = 32;  // in pictures with a row for each link

  // All runs are of the same network.
  void add(const PageRun& run, const sim::Simulation& simulation, const sim::Sampler& sampler);
  // XHTML. `table` is plain text; `why_not`: why planners are not taken, a sentence each.
  std::string text(const std::string& network, const std::string& table,
                   const std::vector<std::string>& why_not) const;

 private:
  // Characters of all runs' use of every link over time: what of it is too much is left out.
  static constexpr std::size_t kMostCharacters = 3'000'000;

  std::optional<cluster::Cluster> cluster_;
  Layout layout_;
  nlohmann::json runs_ = nlohmann::json::array();
  std::size_t characters_ = 0;
};

}  // namespace talweg::study
