// PackingLp: how much to take of each of many columns so that the gain is greatest and no row holds more than
// its capacity; columns may be added after a solution, as column generation wants it.
//
//   PackingLp lp({1.0, 2.0});
//   lp.add_column({{0, 1.0}, {1, 1.0}}, 1.0);
//   lp.solve();
//   lp.value(); lp.prices(); lp.amounts();
//
// Deterministic: the same columns in the same order give the same solution on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "forest/work_limit.h"

namespace talweg::forest {

class PackingLp {
 public:
  // Where work is limited, so is memory: to the 800 MB of the inverse for so many rows.
  static constexpr std::size_t kMostRows = 10'000;
  struct Term {
    int row = 0;
    double amount = 0;
  };

  // Capacities are at least 0, the greatest should be near 1. Work is spent from `limit`, if there is one;
  // more than kMostRows are too much of it.
  explicit PackingLp(std::vector<double> capacities, WorkLimit* limit = nullptr);
  // Returns the column's number. The gain of all columns together must be bounded by the rows.
  int add_column(std::vector<Term> terms, double gain);
  // From where the last solution ended, a solution is near if little was changed.
  void set_gain(int column, double gain);
  // Until no column improves the gain by more than rounding.
  void solve();

  double value() const;
  // How much was worked so far, in steps that take about a nanosecond: the same on every machine.
  std::int64_t effort() const { return effort_; }
  // Of each row, at least 0: at these prices no column costs less than it gains.
  std::vector<double> prices() const;
  // Of each column, at least 0.
  std::vector<double> amounts() const;

 private:
  struct Column {
    std::vector<Term> terms;
    double gain = 0;
    bool in_basis = false;
  };
  double reduced_gain(const Column& column) const;
  int choose();
  bool pivot();
  void enter(int column, std::size_t row, const std::vector<double>& direction);
  void refactor();
  std::vector<double> levels(const std::vector<double>& capacities) const;
  double& inverse(std::size_t row, std::size_t column) { return inverse_[row * rows_ + column]; }
  double inverse(std::size_t row, std::size_t column) const { return inverse_[row * rows_ + column]; }

  std::size_t rows_;
  std::vector<double> capacities_;
  std::vector<double> perturbed_;
  std::vector<Column> columns_;  // the first rows_ are slacks
  std::vector<int> basis_;       // the column that each row of the inverse stands for
  std::vector<double> inverse_;
  std::vector<double> level_;   // of the basic columns, for the perturbed capacities
  std::vector<double> prices_;  // of the rows
  std::size_t next_ = 0;        // where to look for the next column
  int pivots_since_refactor_ = 0;
  std::int64_t effort_ = 0;
  WorkLimit* limit_;
};

}  // namespace talweg::forest
