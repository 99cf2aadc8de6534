// What `talweg fabric` shows of what was seen: a table for people, JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/fabric_study.h"

namespace talweg::study {

// A line for each check, and below them what to do, once each. `wide`: nothing is broken or cut, however
// wide.
std::string fabric_table(const FabricResult& result, bool wide);
nlohmann::json fabric_json(const FabricResult& result);

}  // namespace talweg::study
