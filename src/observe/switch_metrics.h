// What a switch of streaming aggregation does, for Prometheus' textfile collector and for people.
// docs/aggregation.md lists the names.
#pragma once

#include <string>

#include "live/aggregation/switch_service.h"

namespace talweg::observe {

std::string switch_metrics(const live::SwitchStatus& status);

}  // namespace talweg::observe
