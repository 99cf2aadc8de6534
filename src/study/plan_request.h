// What can be asked about plans for a network, as the command line and Python say it, and what that comes to.
#pragma once

#include <span>
#include <string>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "study/field.h"
#include "study/plan_study.h"

namespace talweg::study {

// plan_fields() says what each means.
struct PlanRequest {
  std::string cluster, from;
  std::string op = "all_reduce";
  int root = 0;
  std::string bytes = "4K..1G";
  int factor = 4;
  std::string algo, servers;
  std::string patience = "20s";
};

std::span<const Field<PlanRequest>> plan_fields();

// Where a network came from.
struct NetworkSource {
  std::string path;
  std::string format;
};

struct PlanQuestion {
  cluster::Cluster network;
  NetworkSource source;
  StudyRequest request;

  forest::Request largest() const;
};

// Reads the file. Throws Error{invalid_argument}, Error{bad_file} with one line that names the field as
// "--name".
PlanQuestion checked(const PlanRequest& request);

}  // namespace talweg::study
