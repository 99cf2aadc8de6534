// Options that were given and do nothing in the run that was asked for: one sentence each, which begins with
// the option as it was written. They are no errors: a sweep may pass through such a run.
#pragma once

#include <string>
#include <vector>

#include "sim/network.h"
#include "study/simulate_request.h"

namespace talweg::study {

// `options` is what the request came to. In the order of the request's fields.
std::vector<std::string> idle_options(const SimulateRequest& request, const SimulateOptions& options);

// The same of what carries the packets of programs.
std::vector<std::string> idle_network_options(const SimulateRequest& request,
                                              const sim::NetworkOptions& network);

}  // namespace talweg::study
