// What `talweg probe` shows of what was found: a table for people, JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "steer/prober.h"

namespace talweg::study {

// Hosts and their rates, pairs that are slower than these say, what is shared, and how sure all this is.
// `wide`: whole names, however wide.
std::string probe_table(const steer::ProbeResult& result, bool wide);
nlohmann::json probe_json(const steer::ProbeResult& result);

}  // namespace talweg::study
