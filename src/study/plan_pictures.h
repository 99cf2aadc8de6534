// Pictures of a study, as SVG: the network, and the rates against sizes. What changes with the plan that is
// looked at (loads, trees) the page's script paints.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "study/plan_layout.h"
#include "study/plan_study.h"

namespace talweg::study {

// Pixels from the centre to the workers.
double radius_of(const cluster::Cluster& network);
std::string network_picture(const cluster::Cluster& network, const std::vector<Place>& places,
                            const Study& study);
std::string rate_picture(const Study& study);
// One entry for every line of the picture above.
std::string rate_legend(const Study& study);

}  // namespace talweg::study
