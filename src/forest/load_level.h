// LoadLevel: trees mixed one after the other, each in the amount that levels the loads of all best. It comes
// near the most that trees carry together with no linear program, whose first hundreds of trees are so found
// in a fraction of the time.
//
//   LoadLevel level(capacities, loads);      // of some trees that add up to a rate of 1
//   for (int i = 0; i < steps; ++i) level.mix(cheapest_at(level.prices(sharpness)), sharpness);
#pragma once

#include <vector>

#include "forest/packing_lp.h"

namespace talweg::forest {

class LoadLevel {
 public:
  // Capacities are above 0; `used` is what a mixture takes of each resource, in their unit.
  LoadLevel(std::vector<double> capacities, const std::vector<double>& used);
  // Per resource, by how much a little more of it would raise the sum of loads to the power of 2 to
  // `sharpness`: the higher, the more the busiest alone counts. The greatest load times its capacity has 1.
  std::vector<double> prices(int sharpness) const;
  // Replaces a part of the mixture, between 0 and a quarter, by a tree that takes `terms` at a rate of 1;
  // terms of rows beyond the capacities are passed over.
  void mix(const std::vector<PackingLp::Term>& terms, int sharpness);

 private:
  std::vector<double> capacities_;
  std::vector<double> loads_;  // parts of the capacities
};

}  // namespace talweg::forest
