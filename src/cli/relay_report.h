// What became of the packets of a lab whose network was simulated (fabric/relay.h), for people and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cluster/cluster.h"
#include "fabric/relay.h"

namespace talweg::cli {

// A relay of which one packet in a hundred was handed over later than this says little of the network.
inline constexpr std::int64_t kTrustedLateNs = 1'000'000;

// The links that carried anything, and how late packets were.
std::string relay_text(const cluster::Cluster& cluster, const fabric::RelayReport& report, bool wide);
// What makes the run no measurement of the network, one sentence; empty: nothing does.
std::string relay_doubt(const fabric::RelayReport& report);
// {"format": "talweg lab", "links": [{"link": "h0->s", "packets": ..., "dropped": [by priority], ...}], ...}
nlohmann::json relay_json(const cluster::Cluster& cluster, const fabric::RelayReport& report);

}  // namespace talweg::cli
