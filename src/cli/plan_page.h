// A study as one page that stands alone: pictures, tables and what little script moves them. No network is
// needed to read it, and it is well-formed XML.
#pragma once

#include <string>

#include "cli/plan_report.h"
#include "cli/plan_study.h"
#include "cluster/cluster.h"

namespace talweg::cli {

// Plans the largest size by every planner, to show their trees and loads.
std::string plan_page(const cluster::Cluster& network, const NetworkSource& source, const Study& study);

// The fixed parts.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace talweg::cli
