// What a lab needs whose network is simulated (relay.h): hosts alone, each with a device of which the relay
// holds the other end. Of the network nothing is left out.
#pragma once

#include "cluster/cluster.h"
#include "fabric/lab_plan.h"

namespace talweg::fabric {

// Each host's device lets packets go at the rate of the host's links, so that programs wait as they would for
// a network card, and what waits is in the kernel, where it belongs to its sender. Throws Error{unsupported}:
// too many hosts, a cluster without workers.
LabPlan plan_relayed_lab(const cluster::Cluster& cluster, const LabMeans& means);

}  // namespace talweg::fabric
