// The revised primal simplex method with an explicit inverse of the basis (Dantzig 1963). Rows are few
// (links), and columns sparse, so a dense inverse is both quick and simple. Networks are full of equal links,
// hence of ties, on which the method could cycle: the capacities are perturbed by some 1e-7 of pseudo-random
// amounts while it runs; the basis it ends with is then solved for the true ones.
#include "forest/packing_lp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"

namespace talweg::forest {
namespace {

constexpr double kTolerance = 1e-10;  // of reduced gains
constexpr double kLeastPivot = 1e-9;  // smaller ones are rounding
constexpr double kPerturbation = 1e-7;
constexpr std::size_t kBlock = 256;     // columns
constexpr int kPivotsPerInverse = 400;  // rounding adds up over pivots

// Before memory is taken for them.
std::size_t allowed_rows(std::size_t rows, WorkLimit* limit) {
  if (limit == nullptr) return rows;
  if (rows > PackingLp::kMostRows) throw WorkLimit::Reached();
  limit->spend(static_cast<std::int64_t>(rows * rows));
  return rows;
}

}  // namespace

PackingLp::PackingLp(std::vector<double> capacities, WorkLimit* limit)
    : rows_(allowed_rows(capacities.size(), limit)),
      capacities_(std::move(capacities)),
      perturbed_(capacities_),
      inverse_(rows_ * rows_),
      prices_(rows_),
      limit_(limit) {
  Random random{1};
  for (double& capacity : perturbed_)
    capacity +=
        kPerturbation * (capacity + 0.01) * (0.5 + static_cast<double>(random.below(1 << 20)) / (1 << 20));
  for (std::size_t row = 0; row < rows_; ++row) {
    columns_.push_back({{{static_cast<int>(row), 1.0}}, 0.0, true});
    basis_.push_back(static_cast<int>(row));
    inverse(row, row) = 1;
  }
  level_ = perturbed_;
}

int PackingLp::add_column(std::vector<Term> terms, double gain) {
  columns_.push_back({std::move(terms), gain, false});
  return static_cast<int>(columns_.size() - rows_) - 1;
}

void PackingLp::set_gain(int column, double gain) {
  Column& changed = columns_[rows_ + static_cast<std::size_t>(column)];
  const double more = gain - changed.gain;
  changed.gain = gain;
  if (!changed.in_basis) return;
  const auto place = std::ranges::find(basis_, static_cast<int>(rows_) + column) - basis_.begin();
  for (std::size_t i = 0; i < rows_; ++i) prices_[i] += more * inverse(static_cast<std::size_t>(place), i);
}

double PackingLp::reduced_gain(const Column& column) const {
  double gain = column.gain;
  for (const Term& term : column.terms) gain -= prices_[static_cast<std::size_t>(term.row)] * term.amount;
  return gain;
}

void PackingLp::solve() {
  while (pivot()) {
  }
}

// The best of the first block, from where the last search ended, that has a column which gains: to look at
// all columns for every pivot takes longer than the pivot.
int PackingLp::choose() {
  int best = -1;
  double most = kTolerance;
  for (std::size_t seen = 1; seen <= columns_.size(); ++seen) {
    if (next_ >= columns_.size()) next_ = 0;
    const std::size_t i = next_++;
    if (!columns_[i].in_basis) {
      const double gain = reduced_gain(columns_[i]);
      if (gain > most) {
        most = gain;
        best = static_cast<int>(i);
      }
    }
    if (best >= 0 && seen % kBlock == 0) break;
  }
  return best;
}

bool PackingLp::pivot() {
  const int entering = choose();
  if (entering < 0) return false;
  std::vector<double> direction(rows_);
  for (std::size_t row = 0; row < rows_; ++row)  // along rows, as they lie in memory
    for (const Term& term : columns_[static_cast<std::size_t>(entering)].terms)
      direction[row] += inverse(row, static_cast<std::size_t>(term.row)) * term.amount;
  std::size_t leaving = rows_;
  double least = 0;
  for (std::size_t row = 0; row < rows_; ++row) {
    if (direction[row] < kLeastPivot) continue;
    const double step = std::max(0.0, level_[row]) / direction[row];
    // Among steps that are equal but for rounding the greatest pivot is the safest.
    if (leaving == rows_ || step < least - 1e-13 ||
        (step < least + 1e-13 && direction[row] > direction[leaving])) {
      leaving = row;
      least = step;
    }
  }
  if (leaving == rows_) return false;  // rounding: true gains are bounded
  enter(entering, leaving, direction);
  return true;
}

void PackingLp::enter(int column, std::size_t row, const std::vector<double>& direction) {
  const double gain = reduced_gain(columns_[static_cast<std::size_t>(column)]);
  columns_[static_cast<std::size_t>(basis_[row])].in_basis = false;
  columns_[static_cast<std::size_t>(column)].in_basis = true;
  basis_[row] = column;
  const auto steps = static_cast<std::int64_t>(rows_ * rows_);
  effort_ += steps;
  if (limit_ != nullptr) limit_->spend(steps);
  if (++pivots_since_refactor_ >= kPivotsPerInverse) {
    refactor();
    return;
  }
  double* const pivot_row = &inverse_[row * rows_];
  const double scale = 1 / direction[row];
  std::vector<std::size_t> used;  // the entries of the pivot row that are not 0: few at first
  for (std::size_t i = 0; i < rows_; ++i) {
    if (pivot_row[i] == 0) continue;
    pivot_row[i] *= scale;
    used.push_back(i);
  }
  level_[row] *= scale;
  for (std::size_t other = 0; other < rows_; ++other) {
    if (other == row || direction[other] == 0) continue;
    double* const target = &inverse_[other * rows_];
    for (const std::size_t i : used) target[i] -= direction[other] * pivot_row[i];
    level_[other] -= direction[other] * level_[row];
  }
  for (const std::size_t i : used) prices_[i] += gain * pivot_row[i];
}

// Inverts the basis afresh by elimination with row exchanges.
void PackingLp::refactor() {
  pivots_since_refactor_ = 0;
  std::vector<double> matrix(rows_ * rows_);
  for (std::size_t column = 0; column < rows_; ++column)
    for (const Term& term : columns_[static_cast<std::size_t>(basis_[column])].terms)
      matrix[static_cast<std::size_t>(term.row) * rows_ + column] += term.amount;
  std::ranges::fill(inverse_, 0.0);
  for (std::size_t i = 0; i < rows_; ++i) inverse(i, i) = 1;
  for (std::size_t column = 0; column < rows_; ++column) {
    if (limit_ != nullptr) limit_->spend(0);  // all columns together take as long as many pivots
    std::size_t best = column;
    for (std::size_t row = column; row < rows_; ++row)
      if (std::abs(matrix[row * rows_ + column]) > std::abs(matrix[best * rows_ + column])) best = row;
    if (best != column) {
      std::swap_ranges(&matrix[best * rows_], &matrix[best * rows_] + rows_, &matrix[column * rows_]);
      std::swap_ranges(&inverse_[best * rows_], &inverse_[best * rows_] + rows_, &inverse_[column * rows_]);
    }
    const double scale = 1 / matrix[column * rows_ + column];
    std::vector<std::size_t> used, used_inverse;
    for (std::size_t i = 0; i < rows_; ++i) {
      if (matrix[column * rows_ + i] != 0) {
        matrix[column * rows_ + i] *= scale;
        used.push_back(i);
      }
      if (inverse(column, i) != 0) {
        inverse(column, i) *= scale;
        used_inverse.push_back(i);
      }
    }
    for (std::size_t row = 0; row < rows_; ++row) {
      const double factor = matrix[row * rows_ + column];
      if (row == column || factor == 0) continue;
      for (const std::size_t i : used) matrix[row * rows_ + i] -= factor * matrix[column * rows_ + i];
      for (const std::size_t i : used_inverse) inverse(row, i) -= factor * inverse(column, i);
    }
  }
  level_ = levels(perturbed_);
  std::ranges::fill(prices_, 0.0);
  for (std::size_t row = 0; row < rows_; ++row) {
    const double gain = columns_[static_cast<std::size_t>(basis_[row])].gain;
    if (gain == 0) continue;
    for (std::size_t i = 0; i < rows_; ++i) prices_[i] += gain * inverse(row, i);
  }
}

std::vector<double> PackingLp::levels(const std::vector<double>& capacities) const {
  std::vector<double> result(rows_);
  for (std::size_t row = 0; row < rows_; ++row)
    for (std::size_t i = 0; i < rows_; ++i) result[row] += inverse(row, i) * capacities[i];
  return result;
}

double PackingLp::value() const {
  double sum = 0;
  for (std::size_t row = 0; row < rows_; ++row) sum += prices_[row] * capacities_[row];
  return sum;
}

std::vector<double> PackingLp::prices() const {
  std::vector<double> result = prices_;
  for (double& price : result) price = std::max(0.0, price);
  return result;
}

std::vector<double> PackingLp::amounts() const {
  const auto true_levels = levels(capacities_);
  std::vector<double> result(columns_.size() - rows_);
  for (std::size_t row = 0; row < rows_; ++row) {
    const auto column = static_cast<std::size_t>(basis_[row]);
    if (column >= rows_) result[column - rows_] = std::max(0.0, true_levels[row]);
  }
  return result;
}

}  // namespace talweg::forest
