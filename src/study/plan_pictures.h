// Pictures of a study, as SVG: the network, and the rates against sizes. What changes with the plan that is
// looked at (loads, trees) the page's script paints.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "study/plan_study.h"

namespace talweg::study {

// Where the nodes of a network stand in a picture: workers on a circle, those of one switch next to each
// other; switches inside, tier by tier, each between what hangs on it; a single one at the top in the centre.
struct Place {
  double x = 0, y = 0;  // the circle of the workers has radius 1; y points down
  double angle = 0;     // radians, seen from the centre
  int tier = 0;         // 0: worker; else hops to the nearest worker
};

// By node. Depends on nothing but the network.
std::vector<Place> lay_out(const cluster::Cluster& network);

// Pixels from the centre to the workers.
double radius_of(const cluster::Cluster& network);
std::string network_picture(const cluster::Cluster& network, const std::vector<Place>& places,
                            const Study& study);
std::string rate_picture(const Study& study);
// One entry for every line of the picture above.
std::string rate_legend(const Study& study);

}  // namespace talweg::study
