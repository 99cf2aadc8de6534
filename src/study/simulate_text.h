// What `talweg simulate` prints and writes: everything here depends on the inputs and the seed alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/simulate_run.h"

namespace talweg::study {

// The table's head as talweg perf prints it, with the network in place of processes; "" for flows and
// workloads.
std::string simulate_header(const SimulateOptions& options);
// What stands below the lines of collectives, or the whole table of flows or of a workload.
std::string simulate_body(const SimulateOptions& options, const SimulateResult& result);
nlohmann::json simulate_json(const SimulateOptions& options, const SimulateResult& result);
std::string simulate_csv(const SimulateOptions& options, const SimulateResult& result);

// The numbers of a result that stand for it in a sweep, by name: of the largest size, of all flows, of all
// groups.
std::vector<std::pair<std::string, std::string>> simulate_key_numbers(const SimulateResult& result);

}  // namespace talweg::study
