// Start-ups and rates from samples of what collectives took, with how sure they are.
//
//   const Fit fit = fit_times(samples);
//   fit.times.seconds(25 << 20);
//   fit.pieces.front().startup, fit.pieces.front().startup_error;   // 711 us +- 40 us
//
// Least squares of relative errors, since samples range over many powers of two: a line, or several where the
// samples call for them (libraries change their algorithm with the size). Where pieces begin, and how many
// there are, is what the Bayesian information criterion likes best: a piece more must pay for its three
// parameters.
#pragma once

#include <span>
#include <vector>

#include "train/job.h"
#include "train/transfer_times.h"

namespace talweg::train {

struct Fit {
  struct Piece {
    double from = 0;                   // bytes; the piece's first sample, and for the first piece 0
    double startup = 0, per_byte = 0;  // seconds
    double startup_error = 0, per_byte_error = 0;  // half-widths of their 95 % confidence intervals; infinite
                                                   // where there are fewer than three samples
    int samples = 0;
    bool operator==(const Piece&) const = default;
  };
  TransferTimes times{};
  std::vector<Piece> pieces{};
  double error = 0;  // root mean square of the relative errors
};

inline constexpr int kMostFitPieces = 4;
inline constexpr int kMostFitSizes =
    400;  // distinct sizes at which a piece may begin: work grows with their square

// Neither start-up nor rate comes out below 0, but for start-ups of pieces behind the first (see
// TransferTimes). Throws Error{invalid_argument} for no samples, or one without bytes or time.
Fit fit_times(std::span<const Sample> samples, int most_pieces = kMostFitPieces);

// What a job's exchanges of this kind took on the wire. Those without bytes or time are left out. Of several
// under way together it cannot be told which had the network when: each has its part, by bytes, of what all
// took. Where the job has probes of this kind up to a quarter of the largest of them at least, these stand
// for them: how times grow with the size is the probes', what all exchanges of a step take together their
// own.
std::vector<Sample> samples_of(const Job& job, Collective op);

// Whether probes stand for them.
bool are_probes(const Job& job, Collective op);

// Of a job that Talweg ran, seconds that a call costs the hosts in turn whatever it carries: what the
// smallest probe took. 0 where that is not known, or others sent what was recorded.
double call_of(const Job& job);

}  // namespace talweg::train
