#include "study/network_layout.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/at.h"
#include "base/printable.h"

namespace talweg::study {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kFirstAngle = -kTurn / 4;  // where the first worker stands
constexpr double kNoSide = 0.15;            // of the mean of what hangs on a switch: below, it has no side
constexpr double kLeastRadius = 210;
constexpr double kWorkerSpacing = 27;  // along the circle: a label's height, with air

constexpr double kMostWidth = 1150;  // of tiers: a page's
constexpr double kLeastWidth = 320;
constexpr double kLeastStep = 13;   // from host to host: a label on its side
constexpr double kSwitchStep = 46;  // from switch to switch, where there is room
constexpr double kHostRow = 20;     // from a host to the one below it
constexpr double kAir = 0.6;        // between hosts of two switches, in steps
constexpr std::size_t kMostLetters = 20;
constexpr double kLetter = 6.6;  // width

class Placing {
 public:
  explicit Placing(const cluster::Cluster& network)
      : network_(network), workers_(network.workers()), neighbours_(network.nodes.size()) {
    layout_.places.resize(network.nodes.size());
    for (const cluster::Link& link : network.links) {
      neighbours_[at(link.from)].push_back({link.to, link.capacity.bits_per_second});
      neighbours_[at(link.to)].push_back({link.from, link.capacity.bits_per_second});
    }
  }

  Layout make() {
    find_tiers();
    order_workers();
    layout_.round = is_round();
    layout_.steps.resize(at(layout_.tiers) + 1);
    if (layout_.round)
      place_circle();
    else
      place_hosts();
    for (int tier = 1; tier <= layout_.tiers; ++tier)
      if (layout_.round)
        place_ring(tier);
      else
        place_row(tier);
    return std::move(layout_);
  }

 private:
  struct Neighbour {
    int node;
    double capacity;
  };

  int tier_of(int node) const { return layout_.places[at(node)].tier; }

  void find_tiers() {
    std::deque<int> queue;
    for (std::size_t node = 0; node < layout_.places.size(); ++node) {
      const bool worker = static_cast<int>(node) < workers_;
      layout_.places[node].tier = worker ? 0 : -1;
      if (worker) queue.push_back(static_cast<int>(node));
    }
    while (!queue.empty()) {
      const int node = queue.front();
      queue.pop_front();
      for (const Neighbour& next : neighbours_[at(node)]) {
        if (tier_of(next.node) >= 0) continue;
        layout_.places[at(next.node)].tier = tier_of(node) + 1;
        layout_.tiers = std::max(layout_.tiers, tier_of(next.node));
        queue.push_back(next.node);
      }
    }
    for (Place& place : layout_.places)
      if (place.tier < 0) place.tier = layout_.tiers = std::max(1, layout_.tiers);  // on nothing: the highest
  }

  // Where switches are linked, how hosts hang on them does not count.
  bool is_round() const {
    int all = 0, level = 0, inner = 0, inner_level = 0;
    for (const cluster::Link& link : network_.links) {
      const int from = tier_of(link.from), to = tier_of(link.to);
      ++all;
      if (from == to) ++level;
      if (from == 0 || to == 0) continue;
      ++inner;
      if (from == to) ++inner_level;
    }
    return inner > 0 ? 2 * inner_level >= inner : level > 0 && 2 * level >= all;
  }

  // The node above that it hangs on most; -1 at the top.
  int home(int node) const {
    int best = -1;
    double most = 0;
    for (const Neighbour& next : neighbours_[at(node)]) {
      if (tier_of(next.node) != tier_of(node) + 1) continue;
      if (best >= 0 && (next.capacity < most || (next.capacity == most && next.node >= best))) continue;
      best = next.node;
      most = next.capacity;
    }
    return best;
  }

  // By their homes from the top down: workers that share more of them stand closer.
  void order_workers() {
    const auto workers = at(workers_);
    std::vector<std::vector<int>> homes(workers);
    for (std::size_t worker = 0; worker < workers; ++worker) {
      for (int node = home(static_cast<int>(worker)); node >= 0; node = home(node))
        homes[worker].push_back(node);
      std::ranges::reverse(homes[worker]);
    }
    order_.resize(workers);
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, [&](auto a, auto b) { return homes[a] < homes[b]; });
  }

  void place_circle() {
    const auto workers = static_cast<double>(order_.size());
    layout_.radius = std::max(kLeastRadius, kWorkerSpacing * workers / kTurn);
    layout_.steps[0] = kTurn * layout_.radius / std::max(1.0, workers);
    for (std::size_t i = 0; i < order_.size(); ++i)
      put_around(order_[i], layout_.radius, kFirstAngle + kTurn * static_cast<double>(i) / workers);
  }

  void put_around(std::size_t node, double radius, double angle) {
    Place& place = layout_.places[node];
    place.angle = angle;
    place.x = radius * std::cos(angle);
    place.y = radius * std::sin(angle);
  }

  // Inside the circle, each on the side of what hangs on it.
  void place_ring(int tier) {
    struct Wish {
      std::size_t node;
      double angle;
      bool has_side;
    };
    std::vector<Wish> wishes;
    for (std::size_t node = 0; node < layout_.places.size(); ++node) {
      if (layout_.places[node].tier != tier) continue;
      double x = 0, y = 0, n = 0;
      for (const Neighbour& below : neighbours_[node]) {
        if (tier_of(below.node) != tier - 1) continue;
        x += std::cos(layout_.places[at(below.node)].angle);
        y += std::sin(layout_.places[at(below.node)].angle);
        ++n;
      }
      const double angle = std::atan2(y, x);
      wishes.push_back(
          {node, angle < kFirstAngle ? angle + kTurn : angle, n > 0 && std::hypot(x, y) > kNoSide * n});
    }
    if (wishes.size() == 1 && tier == layout_.tiers) return put_around(wishes[0].node, 0, kFirstAngle);

    const double radius = layout_.radius * (1 - static_cast<double>(tier) / (layout_.tiers + 0.6));
    const double step = kTurn / static_cast<double>(wishes.size());
    layout_.steps[at(tier)] = step * radius;
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
      put_around(wishes[i].node, radius, room ? wishes[i].angle : first + step * static_cast<double>(i));
  }

  // Hosts in the order that was found, with some air between those of different switches; below each other
  // where one row would be too wide.
  void place_hosts() {
    std::vector<std::vector<std::size_t>> racks;
    std::size_t tallest = 1;
    int before = -2;
    double widest = 0;
    for (const std::size_t worker : order_) {
      const int its = home(static_cast<int>(worker));
      if (its != before) racks.emplace_back();
      before = its;
      racks.back().push_back(worker);
      tallest = std::max(tallest, racks.back().size());
      widest = std::max(widest, name_width(network_.nodes[worker]));
    }
    const double air = tallest > 1 ? kAir : 0;
    const auto columns_of = [](std::size_t hosts, std::size_t rows) {
      const std::size_t whole = (hosts + rows - 1) / rows;
      return static_cast<double>(whole);
    };
    const auto columns = [&](std::size_t rows) {
      double sum = air * static_cast<double>(racks.size() - 1);
      for (const auto& rack : racks) sum += columns_of(rack.size(), rows);
      return sum;
    };
    std::size_t rows = 1;
    while (rows < tallest && columns(rows) * kLeastStep > kMostWidth) ++rows;
    const double step =
        std::clamp(kMostWidth / columns(rows), kLeastStep, std::clamp(widest + 12, 44.0, 150.0));

    std::vector<std::size_t> of_tier(at(layout_.tiers) + 1);
    for (const Place& place : layout_.places) ++of_tier[at(place.tier)];
    of_tier[0] = 0;
    const auto most_switches = static_cast<double>(*std::ranges::max_element(of_tier));
    layout_.width = std::max({columns(rows) * step, most_switches * kLeastStep * 2, kLeastWidth});
    layout_.host_rows = static_cast<int>(rows);
    layout_.steps[0] = step;
    double left = (layout_.width - columns(rows) * step) / 2;
    for (const auto& rack : racks) {
      for (std::size_t i = 0; i < rack.size(); ++i) {
        const std::size_t column = i / rows;
        layout_.places[rack[i]].x = left + (static_cast<double>(column) + 0.5) * step;
        layout_.places[rack[i]].y = static_cast<double>(i % rows) * kHostRow;
      }
      left += (columns_of(rack.size(), rows) + air) * step;
    }
  }

  // Each above the middle of what hangs on it, if that leaves room; else evenly in the same order.
  void place_row(int tier) {
    struct Wish {
      std::size_t node;
      double x;
    };
    std::vector<Wish> wishes;
    for (std::size_t node = 0; node < layout_.places.size(); ++node) {
      if (layout_.places[node].tier != tier) continue;
      double sum = 0, n = 0;
      for (const Neighbour& below : neighbours_[node]) {
        if (tier_of(below.node) != tier - 1) continue;
        sum += layout_.places[at(below.node)].x;
        ++n;
      }
      wishes.push_back({node, n > 0 ? sum / n : layout_.width / 2});
    }
    std::ranges::stable_sort(wishes, [](const Wish& a, const Wish& b) { return a.x < b.x; });
    const double even = layout_.width / static_cast<double>(wishes.size());
    bool room = true;
    double least = layout_.width;
    for (std::size_t i = 1; i < wishes.size(); ++i) {
      const double apart = wishes[i].x - wishes[i - 1].x;
      room = room && apart >= std::min(kSwitchStep, 0.8 * even);
      least = std::min(least, apart);
    }
    const double height = std::clamp(layout_.width / 9, 90.0, 130.0);
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      Place& place = layout_.places[wishes[i].node];
      place.x = room ? wishes[i].x : even * (static_cast<double>(i) + 0.5);
      place.y = -tier * height;
    }
    layout_.steps[at(tier)] = room ? least : even;
  }

  const cluster::Cluster& network_;
  const int workers_;
  std::vector<std::vector<Neighbour>> neighbours_;
  std::vector<std::size_t> order_;  // of the workers
  Layout layout_;
};

}  // namespace

Layout lay_out(const cluster::Cluster& network) {
  return Placing(network).make();
}

std::string tier_name(int tier, int tiers) {
  constexpr const char* kNames[] = {"hosts", "leaves", "spines", "cores"};
  if (tier == 1 && tiers == 1) return "switches";
  return tier < static_cast<int>(std::size(kNames)) ? kNames[tier] : "tier " + std::to_string(tier);
}

std::string short_name(const cluster::Node& node) {
  std::string name = printable(node.name);
  std::size_t letters = 0, cut = 0;
  for (std::size_t i = 0; i < name.size();
       i += std::max<std::size_t>(1, utf8_length(std::string_view(name).substr(i)))) {
    ++letters;
    if (letters == kMostLetters) cut = i;
    if (letters > kMostLetters) return name.substr(0, cut) + "\u2026";
  }
  return name;
}

double name_width(const cluster::Node& node) {
  const std::string name = short_name(node);
  const auto letters = std::ranges::count_if(name, [](char c) { return (c & 0xc0) != 0x80; });
  return kLetter * static_cast<double>(letters);
}

}  // namespace talweg::study
