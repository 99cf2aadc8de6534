#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <numeric>

#include "base/at.h"
#include "study/plan_pictures.h"

namespace talweg::study {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kFirstAngle = -kTurn / 4;  // where the first worker stands
// Of the mean of what hangs on a switch: below, it has no side.
constexpr double kNoSide = 0.15;

class Layout {
 public:
  explicit Layout(const cluster::Cluster& network)
      : network_(network), places_(network.nodes.size()), neighbours_(network.nodes.size()) {
    for (const cluster::Link& link : network.links) {
      neighbours_[at(link.from)].push_back({link.to, link.capacity.bits_per_second});
      neighbours_[at(link.to)].push_back({link.from, link.capacity.bits_per_second});
    }
  }

  std::vector<Place> make() {
    find_tiers();
    place_workers();
    for (int tier = 1; tier <= tiers_; ++tier) place_tier(tier);
    return std::move(places_);
  }

 private:
  struct Neighbour {
    int node;
    double capacity;
  };

  void find_tiers() {
    std::deque<int> queue;
    for (std::size_t node = 0; node < places_.size(); ++node) {
      const bool worker = static_cast<int>(node) < network_.workers();
      places_[node].tier = worker ? 0 : -1;
      if (worker) queue.push_back(static_cast<int>(node));
    }
    while (!queue.empty()) {
      const int node = queue.front();
      queue.pop_front();
      for (const Neighbour& next : neighbours_[at(node)]) {
        if (places_[at(next.node)].tier >= 0) continue;
        places_[at(next.node)].tier = places_[at(node)].tier + 1;
        tiers_ = std::max(tiers_, places_[at(next.node)].tier);
        queue.push_back(next.node);
      }
    }
    for (Place& place : places_)
      if (place.tier < 0) place.tier = tiers_ = std::max(1, tiers_);  // on nothing: among the highest
  }

  // The node above that it hangs on most; -1 at the top.
  int home(int node) const {
    int best = -1;
    double most = 0;
    for (const Neighbour& next : neighbours_[at(node)]) {
      if (places_[at(next.node)].tier != places_[at(node)].tier + 1) continue;
      if (best >= 0 && (next.capacity < most || (next.capacity == most && next.node >= best))) continue;
      best = next.node;
      most = next.capacity;
    }
    return best;
  }

  void place_workers() {
    // Its homes from the top down: workers that share more of them stand closer.
    const auto workers = at(network_.workers());
    std::vector<std::vector<int>> homes(workers);
    for (std::size_t worker = 0; worker < workers; ++worker) {
      for (int node = home(static_cast<int>(worker)); node >= 0; node = home(node))
        homes[worker].push_back(node);
      std::ranges::reverse(homes[worker]);
    }
    std::vector<std::size_t> order(workers);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return homes[a] < homes[b]; });
    for (std::size_t i = 0; i < workers; ++i)
      put(order[i], 1, kFirstAngle + kTurn * static_cast<double>(i) / static_cast<double>(workers));
  }

  void put(std::size_t node, double radius, double angle) {
    places_[node].angle = angle;
    places_[node].x = radius * std::cos(angle);
    places_[node].y = radius * std::sin(angle);
  }

  void place_tier(int tier) {
    struct Wish {
      std::size_t node;
      double angle;
      bool has_side;
    };
    std::vector<Wish> wishes;
    for (std::size_t node = 0; node < places_.size(); ++node) {
      if (places_[node].tier != tier) continue;
      double x = 0, y = 0, n = 0;
      for (const Neighbour& below : neighbours_[node]) {
        if (places_[at(below.node)].tier != tier - 1) continue;
        x += std::cos(places_[at(below.node)].angle);
        y += std::sin(places_[at(below.node)].angle);
        ++n;
      }
      const double angle = std::atan2(y, x);
      wishes.push_back(
          {node, angle < kFirstAngle ? angle + kTurn : angle, n > 0 && std::hypot(x, y) > kNoSide * n});
    }
    if (wishes.size() == 1 && tier == tiers_) return put(wishes[0].node, 0, kFirstAngle);

    const double radius = 1 - static_cast<double>(tier) / (tiers_ + 0.6);
    const double step = kTurn / static_cast<double>(wishes.size());
    const bool all_have = std::ranges::all_of(wishes, [](const Wish& wish) { return wish.has_side; });
    if (all_have)
      std::ranges::stable_sort(wishes, [](const Wish& a, const Wish& b) { return a.angle < b.angle; });
    // Too close for their wishes, they are spread evenly in the same order.
    bool room = all_have;
    for (std::size_t i = 0; i < wishes.size() && room && wishes.size() > 1; ++i) {
      const double next = i + 1 < wishes.size() ? wishes[i + 1].angle : wishes[0].angle + kTurn;
      room = next - wishes[i].angle > step / 2;
    }
    const double first = all_have ? wishes[0].angle : kFirstAngle + step / 2;
    for (std::size_t i = 0; i < wishes.size(); ++i)
      put(wishes[i].node, radius, room ? wishes[i].angle : first + step * static_cast<double>(i));
  }

  const cluster::Cluster& network_;
  std::vector<Place> places_;
  std::vector<std::vector<Neighbour>> neighbours_;
  int tiers_ = 0;
};

}  // namespace

std::vector<Place> lay_out(const cluster::Cluster& network) {
  return Layout(network).make();
}

}  // namespace talweg::study
