// The network of a predicted step: what a transfer takes between any number of ranks, as --cluster, --rate or
// --alpha-beta say it, or as the transfers that a job has recorded fit it.
//
//   const PredictNetwork network = predict_network({.rate = "10Gbit/s"}, job, 8);
//   network.at(8).all_reduce.seconds(25 << 20);
#pragma once

#include <functional>
#include <string>

#include "train/job.h"
#include "train/transfer_times.h"

namespace talweg::study {

// As the options say it; at most one is not empty.
struct NetworkWords {
  std::string cluster;     // a file; if nothing is said, that of TALWEG_CLUSTER, or else the job
  std::string rate;        // "10Gbit/s", or with what a message takes from host to host: "10Gbit/s,50us"
  std::string alpha_beta;  // of an all-reduce: "523us,0.857ns/B"
};

struct PredictNetwork {
  std::string words;                                 // "examples/clusters/uneven4.yaml (talweg)"
  std::string kind;                                  // "cluster", "rate", "alpha_beta" or "recorded"
  int most_ranks = 0;                                // that there are workers for; 0: as many as one likes
  int quick_ranks = 0;                               // up to here `at` takes no time to speak of
  std::function<train::NetworkTimes(int ranks)> at;  // from 2 ranks on
  std::string assumed{};  // what the job's samples do not tell, in a sentence; empty: nothing is missing
};

// Throws Error{invalid_argument} where more than one is given as an option.
void check_network(const NetworkWords& words);

// `ranks`: those for which --alpha-beta holds; for others it grows as in a ring. Throws
// Error{invalid_argument}, Error{bad_file}.
PredictNetwork predict_network(const NetworkWords& words, const train::Job& job, int ranks);

// Of --alpha-beta: seconds, and seconds per byte.
train::TransferTimes parse_alpha_beta(const std::string& text);

}  // namespace talweg::study
