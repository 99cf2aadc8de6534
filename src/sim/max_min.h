// MaxMin: fair rates of flows that share links and other capacities, by progressive filling (Bertsekas and
// Gallager, Data Networks, 2nd edition, 6.5.2). All rates grow alike until a resource is full; flows that use
// it keep their rate, and the others grow on. Then no rate can be raised without lowering one that is not
// higher.
//
// A resource that would be full at some level now is full at no lower one later, as flows that stop meanwhile
// take less of it than they would have. So a heap of these levels is brought up to date only at its top, and
// filling costs about as much as there are uses.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace talweg::sim {

class MaxMin {
 public:
  struct Use {
    std::uint32_t resource = 0;
    float weight = 0;  // of the flow's rate: 1 on a link that all of it passes
  };

  explicit MaxMin(const std::vector<double>& capacities);

  double capacity(std::uint32_t resource) const { return resources_[resource].capacity; }
  void set_capacity(std::uint32_t resource, double capacity) { resources_[resource].capacity = capacity; }

  // The rate of each flow, in the capacities' unit. A flow that uses nothing has rate 0: it has no way.
  void fill(std::span<const std::vector<Use>* const> flows, std::vector<double>& rates);

 private:
  struct Resource {
    double capacity = 0;
    double taken = 0;         // by flows whose rate is known
    double load = 0;          // weights of the others
    std::uint32_t open = 0;   // uses by those
    std::uint32_t first = 0;  // of its users, and one past the last
    std::uint32_t end = 0;
  };
  using Level = std::pair<double, std::uint32_t>;  // at which a resource is full

  void find_users(std::span<const std::vector<Use>* const> flows);

  std::vector<Resource> resources_;
  std::vector<std::uint32_t> used_;   // resources
  std::vector<std::uint32_t> users_;  // flows, by resource
  std::vector<Level> heap_;
};

}  // namespace talweg::sim
