// The network of a predicted step: what a transfer takes between any number of ranks, as --cluster, --rate or
// --alpha-beta say it, or as the transfers that a job has recorded fit it.
//
//   const PredictNetwork network = predict_network({.rate = "10Gbit/s"}, job, 8);
//   network.at(8).all_reduce.seconds(25 << 20);
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/fit_times.h"
#include "train/job.h"
#include "train/transfer_times.h"

namespace talweg::study {

// As the options say it; at most one is not empty.
struct NetworkWords {
  std::string cluster;     // a file; if nothing is said, that of TALWEG_CLUSTER, or else the job
  std::string rate;        // "10Gbit/s", or with what a message takes from host to host: "10Gbit/s,50us"
  std::string alpha_beta;  // of an all-reduce: "523us,0.857ns/B"
  std::string times =
      "predicted";  // of a cluster or a rate: by the cost model; "simulated": packet by packet
};

struct PredictNetwork {
  std::string words;                                 // "examples/clusters/uneven4.yaml (talweg)"
  std::string kind;                                  // "cluster", "rate", "alpha_beta" or "recorded"
  std::string times;                                 // "predicted", "simulated", "given" or "fitted"
  int most_ranks = 0;                                // that there are workers for; 0: as many as one likes
  int quick_ranks = 0;                               // up to here `at` takes no time to speak of
  std::function<train::NetworkTimes(int ranks)> at;  // from 2 ranks on
  std::string assumed{};  // what the job's samples do not tell, in a sentence; empty: nothing is missing
  std::optional<train::Fit> fit{};  // of "recorded": to the all-reduces of the job's own ranks
  std::string misfit{};  // in a sentence, how far these are off the fit; empty: no more than kBadFit
};

inline constexpr double kBadFit = 0.3;  // root mean square of relative errors, from where on it is said

// Throws Error{invalid_argument} where more than one is given as an option, or times of none that has them.
void check_network(const NetworkWords& words);

// Whether predict_network() has something to go by: words, or what the job has recorded.
bool knows_network(const NetworkWords& words, const train::Job& job);

// `ranks`: those for which --alpha-beta holds; for others it grows as in a ring. Throws
// Error{invalid_argument}, Error{bad_file}.
PredictNetwork predict_network(const NetworkWords& words, const train::Job& job, int ranks);

// Of --alpha-beta: seconds, and seconds per byte.
train::TransferTimes parse_alpha_beta(const std::string& text);

}  // namespace talweg::study
