// How limits are put into words: amounts to three digits, links in the names of the cluster file.
#pragma once

#include <string>

#include "cluster/cluster.h"

namespace talweg::forest {

// "3.1 MB".
std::string rounded_bytes(double bytes);
// "h2's downlink" where it is the only one, else "leaf2->spine0".
std::string link_name(const cluster::Cluster& cluster, const cluster::Link& link);

}  // namespace talweg::forest
