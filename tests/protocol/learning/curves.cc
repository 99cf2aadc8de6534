// What lost gradients cost a model: measures the curves of docs/bounded-loss.md, some minutes on one core,
// and writes them to standard output as JSON; bench/suite/learned.py keeps and draws it.
//
//   learning_curves [SEEDS]     the mean of five, or of so many
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "protocol/learning/examples.h"
#include "protocol/learning/learning.h"

namespace talweg::learning {
namespace {

using protocol::LossScale;

constexpr int kSeeds = 5, kMostSeeds = 1000;

struct Curve {
  const char* name;
  std::vector<Loss> losses;
};

std::vector<Loss> evenly(LossScale scale, bool residual) {
  std::vector<Loss> losses;
  for (const double part : {0.01, 0.05, 0.1, 0.2, 0.4, 0.6})
    losses.push_back({Drops::evenly, part, 0, scale, residual});
  return losses;
}

std::vector<Loss> by_packets(Drops drops, bool residual, const std::vector<std::uint32_t>& packets) {
  std::vector<Loss> losses;
  for (const std::uint32_t n : packets) losses.push_back({drops, 0, n, LossScale::by_all, residual});
  return losses;
}

struct Mean {
  double mean = 0, deviation = 0;
};

Mean mean_of(const std::vector<Learned>& all, double (*value)(const Learned&)) {
  Mean m;
  for (const Learned& l : all) m.mean += value(l) / static_cast<double>(all.size());
  for (const Learned& l : all) m.deviation += (value(l) - m.mean) * (value(l) - m.mean);
  m.deviation = std::sqrt(m.deviation / static_cast<double>(all.size() - 1));
  return m;
}

std::string point(const std::vector<Examples>& examples, const Loss& loss) {
  std::vector<Learned> all;
  for (const Examples& its : examples) all.push_back(learn({its}, loss, all.size() + 1));
  const Mean accuracy = mean_of(all, [](const Learned& l) { return l.score.accuracy; });
  return fmt::format(
      "   {{\"lost\": {:.4f}, \"accuracy\": {:.2f}, \"deviation\": {:.2f}, \"cross_entropy\": {:.3f}, "
      "\"steps_to_86\": {:.0f}}}",
      mean_of(all, [](const Learned& l) { return l.lost; }).mean, accuracy.mean, accuracy.deviation,
      mean_of(all, [](const Learned& l) { return l.score.cross_entropy; }).mean,
      mean_of(all, [](const Learned& l) { return static_cast<double>(l.steps_to_target); }).mean);
}

void print_curves(int seeds) {
  std::vector<Examples> examples;
  for (int seed = 1; seed <= seeds; ++seed) examples.push_back(mixture(static_cast<std::uint64_t>(seed)));
  const std::vector<Curve> curves = {
      {"nothing lost", {{}}},
      {"evenly, by all", evenly(LossScale::by_all, false)},
      {"evenly, by received", evenly(LossScale::by_received, false)},
      {"evenly, residual", evenly(LossScale::by_all, true)},
      {"smallest", by_packets(Drops::smallest, false, {3, 5, 8, 11, 16})},
      {"smallest, residual", by_packets(Drops::smallest, true, {3, 5, 8, 11, 16})},
      {"largest", by_packets(Drops::largest, false, {1, 3, 5, 8, 11})},
      {"last in turn", by_packets(Drops::last_to_leave, false, {2, 5, 8, 11, 16})},
      {"always the same", by_packets(Drops::last_of_tensor, false, {2, 5, 8})},
  };
  fmt::print("{{\n \"seeds\": {},\n \"curves\": {{", seeds);
  const char* between = "\n";
  for (const Curve& curve : curves) {
    fmt::print("{}  \"{}\": [\n", between, curve.name);
    between = ",\n";
    for (std::size_t i = 0; i < curve.losses.size(); ++i)
      fmt::print("{}{}", i > 0 ? ",\n" : "", point(examples, curve.losses[i]));
    fmt::print("\n  ]");
  }
  fmt::print("\n }}\n}}\n");
}

}  // namespace
}  // namespace talweg::learning

int main(int argc, char** argv) {
  using namespace talweg::learning;
  const int seeds = argc > 1 ? std::atoi(argv[1]) : kSeeds;
  if (argc > 2 || seeds < 2 || seeds > kMostSeeds) {
    fmt::print(stderr, "learning_curves: expected a number of seeds, 2 to {}, or nothing: {}\n", kMostSeeds,
               kSeeds);
    return 2;
  }
  print_curves(seeds);
  return 0;
}
