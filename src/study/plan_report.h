// A study as `talweg plan` prints it: text and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cluster/cluster.h"
#include "study/plan_request.h"
#include "text/table.h"

namespace talweg::study {

// "a.yaml (talweg): 4 workers, 1 switch, 8 links"
std::string network_line(const cluster::Cluster& network, const NetworkSource& source);
// "0.2 Gbit/s (0.025 GB/s): h2's downlink; some trees reach it"
std::string bound_line(const cluster::Cluster& network, const Study& study);
// "12.3 us", "1.2 s"
std::string duration_text(double seconds);
// Of what switches are predicted to take: where they are, and when they are taken. Safe to print.
std::string switch_text(const Prediction& by_switch);
// "12.3", where a table's head says the unit for all of its column (text::unit_for()); "-" where there is
// none.
std::string time_in(const text::Unit& unit, const std::optional<double>& seconds);
// "64 MiB, ring: links limit: h2's downlink carries ...", safe to print; `size` may be empty.
std::string limit_text(const std::string& size, const std::string& planner, const forest::Breakdown& spent);
// An object with what a predicted time is made of and what limits it: spent_us, limit, without_limit_us,
// limit_reason.
nlohmann::json breakdown_json(const forest::Breakdown& spent);
// The bound with its proof, or none_because.
nlohmann::json bound_json(const cluster::Cluster& network, const Study& study);

// What is taken for each size, then all planners side by side; `wide`: with all sizes, however wide that is.
std::string to_text(const cluster::Cluster& network, const NetworkSource& source, const Study& study,
                    bool wide);
nlohmann::json to_json(const cluster::Cluster& network, const NetworkSource& source, const Study& study);

}  // namespace talweg::study
