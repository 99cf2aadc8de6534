// A study as one page that stands alone: pictures, tables and what little script moves them. No network is
// needed to read it, and it is well-formed XML.
#pragma once

#include <string>

#include "cluster/cluster.h"
#include "study/plan_report.h"
#include "study/plan_study.h"

namespace talweg::study {

// Plans the largest size by every planner, to show their trees and loads.
std::string plan_page(const cluster::Cluster& network, const NetworkSource& source, const Study& study);

}  // namespace talweg::study
