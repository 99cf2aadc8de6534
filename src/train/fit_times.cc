#include "train/fit_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"

namespace talweg::train {
namespace {

constexpr long double kOneSize = 1e-12L;  // of a product of sums, below which sizes are told to be the same
constexpr std::size_t kLeastSizes = 4;    // of a piece, where there are several
// What a piece costs in the criterion: its two numbers, and two for where it begins, since a place that was
// searched for explains more noise than a number does (Zhang and Siegmund, Biometrics 2007).
constexpr double kPieceParameters = 4;

// Sums of the samples, each weighed by one over its time squared, so that residuals are relative.
struct Sums {
  long double n = 0, w = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;

  void add(const Sample& sample) {
    const long double t = sample.seconds, b = sample.bytes, weight = 1 / (t * t);
    n += 1;
    w += weight;
    x += weight * b;
    y += weight * t;
    xx += weight * b * b;
    xy += weight * b * t;
    yy += 1;
  }
  Sums minus(const Sums& o) const {
    return {n - o.n, w - o.w, x - o.x, y - o.y, xx - o.xx, xy - o.xy, yy - o.yy};
  }
};

struct FittedLine {
  double startup = 0, per_byte = 0;
  double residual = 0;  // sum of squared relative errors
};

double residual_of(const Sums& s, long double a, long double b) {
  const long double r = s.yy - 2 * a * s.y - 2 * b * s.xy + a * a * s.w + 2 * a * b * s.x + b * b * s.xx;
  return static_cast<double>(std::max<long double>(r, 0));
}

long double determinant(const Sums& s) {
  return s.w * s.xx - s.x * s.x;
}

// The best line whose rate is not below 0, nor its time at its first size, nor (of the first piece) its
// start-up.
FittedLine line_through(const Sums& s, double first_size, bool first_piece) {
  const long double det = determinant(s);
  long double a = 0, b = 0;
  if (det > kOneSize * s.w * s.xx) {
    b = (s.w * s.xy - s.x * s.y) / det;
    a = (s.y - b * s.x) / s.w;
  } else {
    b = s.xy / s.xx;  // of one size it cannot be told what is start-up
  }
  if (b < 0) {
    b = 0;
    a = s.y / s.w;
  }
  if (first_piece ? a < 0 : a + b * first_size < 0) {
    a = 0;
    b = s.xy / s.xx;
  }
  return {static_cast<double>(a), static_cast<double>(b), residual_of(s, a, b)};
}

// Of Student's distribution, 97.5 %: exact for one and two degrees of freedom, else by Cornish and Fisher's
// expansion, within 1 % (Abramowitz and Stegun 26.7.5).
double student(double freedom) {
  if (freedom < 1) return std::numeric_limits<double>::infinity();
  if (freedom < 2) return 12.706;
  if (freedom < 3) return 4.303;
  const double z = 1.959964;  // of the normal distribution
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

class PieceFitter {
 public:
  explicit PieceFitter(std::vector<Sample> samples) : samples_(std::move(samples)) {
    std::ranges::sort(samples_, {}, &Sample::bytes);
    // Where a piece may begin: where a size does; of very many sizes, of every so many.
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      if (i == 0 || samples_[i].bytes > samples_[i - 1].bytes) begins.push_back(i);
    const std::size_t stride = (begins.size() + kMostFitSizes - 1) / kMostFitSizes;
    for (std::size_t i = 0; i < begins.size(); i += stride) begins_.push_back(begins[i]);
    begins_.push_back(samples_.size());
    prefix_.resize(samples_.size() + 1);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      prefix_[i + 1] = prefix_[i];
      prefix_[i + 1].add(samples_[i]);
    }
  }

  Fit fit(int most_pieces) {
    const std::size_t sizes = begins_.size() - 1;
    const auto most = std::clamp<std::size_t>(sizes / kLeastSizes, 1, static_cast<std::size_t>(most_pieces));
    find_cuts(most);
    double best = std::numeric_limits<double>::infinity();
    std::size_t pieces = 1;
    for (std::size_t k = 1; k <= most; ++k) {
      const double score = criterion(least_[k][sizes], k);
      if (score >= best) continue;
      best = score;
      pieces = k;
    }
    return fit_of(pieces);
  }

 private:
  Sums sums(std::size_t from, std::size_t to) const {
    return prefix_[begins_[to]].minus(prefix_[begins_[from]]);
  }
  FittedLine line(std::size_t from, std::size_t to) const {
    return line_through(sums(from, to), samples_[begins_[from]].bytes, from == 0);
  }

  // least_[k][j]: of the first j sizes in k pieces; cut_[k][j]: where the last of these begins.
  void find_cuts(std::size_t most) {
    const std::size_t sizes = begins_.size() - 1;
    const double none = std::numeric_limits<double>::infinity();
    least_.assign(most + 1, std::vector<double>(sizes + 1, none));
    cut_.assign(most + 1, std::vector<std::size_t>(sizes + 1));
    for (std::size_t j = 1; j <= sizes; ++j) least_[1][j] = line(0, j).residual;
    for (std::size_t j = 2 * kLeastSizes; j <= sizes && most > 1; ++j) {
      for (std::size_t i = kLeastSizes; i + kLeastSizes <= j; ++i) {
        const double residual = line(i, j).residual;
        for (std::size_t k = 2; k <= most; ++k) {
          const double all = least_[k - 1][i] + residual;
          if (all >= least_[k][j]) continue;
          least_[k][j] = all;
          cut_[k][j] = i;
        }
      }
    }
  }

  double criterion(double residual, std::size_t pieces) const {
    // Clocks and arithmetic have errors of their own: nothing is gained by less than a millionth.
    const auto n = static_cast<double>(samples_.size());
    return n * std::log(residual / n + 1e-12) + kPieceParameters * static_cast<double>(pieces) * std::log(n);
  }

  Fit fit_of(std::size_t pieces) const {
    Fit fit;
    std::vector<TransferTimes::Piece> lines;
    double residual = 0;
    std::size_t to = begins_.size() - 1;
    for (std::size_t k = pieces; k >= 1; --k) {
      const std::size_t from = k == 1 ? 0 : cut_[k][to];
      const FittedLine its = line(from, to);
      residual += its.residual;
      const double begin = from == 0 ? 0 : samples_[begins_[from]].bytes;
      fit.pieces.push_back(with_errors(begin, its, sums(from, to)));
      lines.push_back({begin, its.startup, its.per_byte});
      to = from;
    }
    std::ranges::reverse(fit.pieces);
    std::ranges::reverse(lines);
    fit.times = TransferTimes(std::move(lines));
    fit.error = std::sqrt(residual / static_cast<double>(samples_.size()));
    return fit;
  }

  static Fit::Piece with_errors(double begin, const FittedLine& line, const Sums& s) {
    Fit::Piece piece{
        .from = begin, .startup = line.startup, .per_byte = line.per_byte, .samples = static_cast<int>(s.n)};
    const long double det = determinant(s);
    const auto freedom = static_cast<double>(s.n) - 2;
    if (freedom < 1 || det <= kOneSize * s.w * s.xx) {
      piece.startup_error = piece.per_byte_error = std::numeric_limits<double>::infinity();
      return piece;
    }
    const double spread = student(freedom) * std::sqrt(line.residual / freedom);
    piece.startup_error = spread * std::sqrt(static_cast<double>(s.xx / det));
    piece.per_byte_error = spread * std::sqrt(static_cast<double>(s.w / det));
    return piece;
  }

  std::vector<Sample> samples_;
  std::vector<std::size_t> begins_;  // samples with which a size begins, and their number
  std::vector<Sums> prefix_;
  std::vector<std::vector<double>> least_;
  std::vector<std::vector<std::size_t>> cut_;
};

}  // namespace

Fit fit_times(std::span<const Sample> samples, int most_pieces) {
  if (samples.empty()) refuse("there are no samples of transfer times");
  if (most_pieces < 1 || most_pieces > kMostFitPieces)
    refuse("transfer times are fitted with 1 to {} pieces, not {}", kMostFitPieces, most_pieces);
  for (const Sample& sample : samples)
    if (!std::isfinite(sample.bytes) || !std::isfinite(sample.seconds) || sample.bytes <= 0 ||
        sample.seconds <= 0)
      refuse("a sample of transfer times needs bytes and seconds above 0, not {} and {}", sample.bytes,
             sample.seconds);
  return PieceFitter({samples.begin(), samples.end()}).fit(most_pieces);
}

namespace {

constexpr double kMostOfACall = 1024;  // bytes, that any network carries sooner than hosts have asked for it

std::vector<Sample> probes_of(const Job& job, Collective op) {
  std::vector<Sample> samples;
  for (const Probe& probe : job.probes)
    if (probe.op == op)
      samples.push_back(
          {static_cast<double>(probe.bytes.value), static_cast<double>(probe.time.value) * 1e-9});
  return samples;
}

std::vector<Sample> exchanges_of(const Job& job, Collective op) {
  std::vector<Sample> samples;
  for (const Exchange& exchange : job.exchanges)
    if (exchange.op == op && exchange.bytes.value > 0 && exchange.time.value > 0)
      samples.push_back(
          {static_cast<double>(exchange.bytes.value), static_cast<double>(exchange.time.value) * 1e-9});
  return samples;
}

// Whether probes come near the sizes of the exchanges, beyond which they would say nothing.
bool reach(std::span<const Sample> probed, std::span<const Sample> exchanges) {
  constexpr double kNear = 4;  // times: the recorder's sizes are as far apart
  if (probed.empty()) return false;
  const double largest = std::ranges::max(probed, {}, &Sample::bytes).bytes;
  return std::ranges::all_of(exchanges,
                             [&](const Sample& exchange) { return exchange.bytes <= kNear * largest; });
}

// Probes, all by the one factor with which they say of the exchanges of a step what these took together:
// while layers are computed, calls come as they may, and hosts have less time for them.
std::vector<Sample> at_level_of(std::span<const Sample> exchanges, std::vector<Sample> probed) {
  const TransferTimes times = fit_times(probed).times;
  double taken = 0, expected = 0;
  for (const Sample& exchange : exchanges) {
    taken += exchange.seconds;
    expected += times.seconds(exchange.bytes);
  }
  if (expected > 0)
    for (Sample& sample : probed) sample.seconds *= taken / expected;
  return probed;
}

}  // namespace

std::vector<Sample> samples_of(const Job& job, Collective op) {
  std::vector<Sample> samples = exchanges_of(job, op);
  if (std::vector<Sample> probed = probes_of(job, op); reach(probed, samples))
    return at_level_of(samples, std::move(probed));
  if (job.in_flight == 1) return samples;
  double bytes = 0, seconds = 0;
  for (const Sample& sample : samples) {
    bytes += sample.bytes;
    seconds += sample.seconds;
  }
  for (Sample& sample : samples) sample.seconds = seconds * sample.bytes / bytes;
  return samples;
}

bool are_probes(const Job& job, Collective op) {
  return reach(probes_of(job, op), exchanges_of(job, op));
}

double call_of(const Job& job) {
  if (job.backend != "talweg" || job.ranks < 2) return 0;
  const std::vector<Sample> probes = probes_of(job, Collective::all_reduce);
  if (probes.empty()) return 0;
  const Sample least = *std::ranges::min_element(probes, {}, &Sample::bytes);
  return least.bytes <= kMostOfACall ? least.seconds : 0;
}

}  // namespace talweg::train
