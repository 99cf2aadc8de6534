// A network as SVG. What changes with what is looked at (loads, trees, time) the pages' scripts paint.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "study/network_layout.h"

namespace talweg::study {

// More nodes are not drawn: nobody could tell them apart, and browsers take long.
inline constexpr std::size_t kMostNodesToDraw = 2000;

// An element with the id "network", within which are "links", a path for each in the order of the file, whose
// title says the link; "nodes", one for each; and "tree", empty. `priced`: by link, those that set the bound;
// or empty.
std::string network_picture(const cluster::Cluster& network, const Layout& layout,
                            const std::vector<bool>& priced = {});

// One entry for each colour of a link. `what`: of which part, such as "of the predicted time".
std::string use_legend(const std::string& what);

}  // namespace talweg::study
