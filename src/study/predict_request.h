// What can be asked about a training step, as the command line and Python say it, and what that comes to.
//
//   PredictRequest request{.job = {"resnet50.yaml"}, .rate = "10Gbit/s", .ranks = "8"};
//   const StepStudy found = study_step(checked(request));   // predict_study.h
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/field.h"
#include "study/predict_network.h"
#include "train/job.h"
#include "train/strategies.h"
#include "train/traces/buckets.h"
#include "train/traces/read_job.h"

namespace talweg::study {

// predict_fields() says what each means.
struct PredictRequest {
  std::vector<std::string> job;
  std::string model, device;
  std::string cluster, rate, alpha_beta;
  std::string times = NetworkWords{}.times;
  std::string ranks;
  std::string strategy = "all";
  std::string bucket_cap = "25M";
  int in_flight = 0;  // 0: as recorded
  double compress = 1, faster = 1, batch = 1;
};

std::span<const Field<PredictRequest>> predict_fields();

struct StepQuestion {
  train::Job job;
  std::string source;              // the files, or the model's device
  std::string kind;                // "kineto", "job"; "model" of a ready-made one
  std::vector<std::string> notes;  // what had to be assumed of it, a sentence each
  // Of a trace that tells gaps apart, a step's on one rank: the device waits for its host to launch what
  // comes next, or for another stream or memory. Both 0: it does not.
  Nanoseconds launch_gaps{}, stream_gaps{};
  std::optional<train::BucketCaps> bucket_caps{};  // with which DDP filled the buckets that were recorded
  PredictNetwork network;
  std::vector<int> ranks;  // ascending, each from 2 on; the largest is looked at closely
  std::vector<train::Strategy> strategies;
  bool all_strategies = true;  // false: only those asked for
  double compression = 1, compute = 1, batch = 1;
  int in_flight = 1;   // transfers at once
  bool curves = true;  // whether steps over ranks and over bandwidths are asked for

  train::Setting setting(int ranks) const;
};

// The job alone, where nothing says on which network: neither the request nor what the job has recorded.
// Reads the files, and throws as checked() does.
std::optional<train::Job> job_without_network(const PredictRequest& request,
                                              const train::WatchReading& watch = {});

// Reads the files. Throws Error{invalid_argument}, Error{bad_file} with one line that names the field as
// "--name".
StepQuestion checked(const PredictRequest& request, const train::WatchReading& watch = {});

}  // namespace talweg::study
