// Which capacity groups of a cluster a lab can emulate, and how.
//
// A group of one link narrows that link. Of workers with links straight to each other, a group of links out
// of one worker becomes a total at the sender, and a group of all links into one worker a limit at the
// receiver's port. What several devices would have to share at a distance, Linux cannot shape; such a group
// becomes a warning.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::fabric {

struct GroupAssignment {
  std::vector<Bandwidth> rate;                      // by link: its capacity, narrowed by groups of its own
  std::vector<std::optional<int>> egress_total_of;  // by link: index into its sender's totals
  std::map<int, std::vector<Bandwidth>> egress_totals;  // by sending node
  std::map<int, Bandwidth> ingress_total;               // by receiving node
  std::vector<std::string> warnings;                    // "capacity group nic0 is not emulated: ..."
};

GroupAssignment assign_groups(const cluster::Cluster& cluster);

}  // namespace talweg::fabric
