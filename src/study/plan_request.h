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
  std::string cluster, topology, from;
  std::string op = "all_reduce";
  int root = 0;
  std::string bytes = "4K..1G";
  int factor = 4;
  std::string algo, servers;
  std::string patience = "20s";
};

std::span<const Field<PlanRequest>> plan_fields();

// Where a network came from: a file, or the word of --topology, whose format is "topology".
struct NetworkSource {
  std::string path;
  std::string format;
};

// The network that a file describes, or the word of --topology. Throws Error{invalid_argument} where not
// exactly one of them is given, and what reading them throws.
cluster::Cluster network_of(const std::string& file, const std::string& topology);

struct PlanQuestion {
  cluster::Cluster network;
  NetworkSource source;
  StudyRequest request;

  forest::Request largest() const;
};

// Reads the file, if there is one. Throws Error{invalid_argument}, Error{bad_file} with one line that names
// the field as
// "--name".
PlanQuestion checked(const PlanRequest& request);

}  // namespace talweg::study
