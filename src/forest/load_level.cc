// The method of Frank and Wolfe (1956) on the sum of a high power of the loads, which rises with the steps as
// their exponential does in packing by multiplicative weights (Plotkin, Shmoys and Tardos 1995). Powers of 2
// of a load are a few products, the same on every machine.
#include "forest/load_level.h"

#include <algorithm>
#include <utility>

namespace talweg::forest {
namespace {

constexpr double kMostAtOnce = 0.25;
constexpr int kNarrowings = 16;        // of the interval that the best part is in: to 0.0005 of it
constexpr double kGolden = 0.381966;   // of the interval, where its inner points lie
constexpr double kLeastLoad = 1e-300;  // below it nothing is divided by a load

double power(double load, int sharpness) {
  for (int i = 0; i < sharpness; ++i) load *= load;
  return load;
}

}  // namespace

LoadLevel::LoadLevel(std::vector<double> capacities, const std::vector<double>& used)
    : capacities_(std::move(capacities)) {
  for (std::size_t i = 0; i < capacities_.size(); ++i) loads_.push_back(used[i] / capacities_[i]);
}

std::vector<double> LoadLevel::prices(int sharpness) const {
  const double most = *std::ranges::max_element(loads_);
  std::vector<double> result;
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    const double load = loads_[i] / most;
    result.push_back(load < kLeastLoad ? 0 : power(load, sharpness) / load / capacities_[i]);
  }
  return result;
}

void LoadLevel::mix(const std::vector<PackingLp::Term>& terms, int sharpness) {
  const double most = *std::ranges::max_element(loads_);
  std::vector<double> more(loads_.size());
  for (const auto& [row, amount] : terms)
    if (const auto i = static_cast<std::size_t>(row); i < more.size()) more[i] += amount / capacities_[i];
  const auto unevenness = [&](double part) {
    double sum = 0;
    for (std::size_t i = 0; i < loads_.size(); ++i)
      sum += power(((1 - part) * loads_[i] + part * more[i]) / most, sharpness);
    return sum;
  };
  double least = 0, greatest = kMostAtOnce;
  for (int i = 0; i < kNarrowings; ++i) {
    const double inner = kGolden * (greatest - least);
    if (unevenness(least + inner) <= unevenness(greatest - inner))
      greatest -= inner;
    else
      least += inner;
  }
  const double part = (least + greatest) / 2;
  for (std::size_t i = 0; i < loads_.size(); ++i) loads_[i] = (1 - part) * loads_[i] + part * more[i];
}

}  // namespace talweg::forest
