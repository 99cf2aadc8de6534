// Prober: runs a Survey on a live group, so that the network between its hosts becomes a Cluster.
//
// One rank of each host sends and receives for all ranks there. Rank 0 keeps the survey and tells everybody
// what runs next: a set of flows, for a time. Senders keep a window of messages in flight until it is over.
// Receivers count what arrives after the first quarter of it, in which token buckets are emptied and
// congestion windows open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "steer/findings.h"
#include "talweg/group.h"

namespace talweg::steer {

struct ProbeResult {
  cluster::Cluster network;             // the same on all ranks
  Findings findings;                    // on rank 0 only, as all that follows
  std::vector<std::string> host_names;  // by host, as in `network`
  double seconds = 0;
  std::int64_t bytes = 0;  // that were sent between hosts
};

// Every rank of the group calls it, with nothing else in flight. `machine_of[r]` numbers the host of rank r.
// Throws Error{invalid_argument} where all ranks are on one host, and what the group throws: then the group
// is aborted, because messages are still under way.
ProbeResult probe(Group& group, const std::vector<int>& machine_of, const ProbeOptions& options);

}  // namespace talweg::steer
