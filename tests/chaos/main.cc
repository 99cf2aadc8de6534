// chaos: clusters that fail in every way that a seed can think of, thousands of them.
//
//   chaos                              the short run; every mark must be reached
//   chaos --seeds 10000 [--first 1]    a long one
//   chaos --seed 4711                  one seed, with all that happens in it
//   ... --mutation duplicate_frames    with a protocol that is broken on purpose
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>

#include "chaos/world.h"

namespace talweg::chaos {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kShort = 300;
constexpr bool kMarksCount = false;  // too few for all of them
#else
constexpr std::uint64_t kShort = 3000;
constexpr bool kMarksCount = true;
#endif

struct Options {
  std::uint64_t first = 1;
  std::uint64_t seeds = 0;  // 0: the short run
  std::uint64_t seed = 0;   // 0: many
  Mutation mutation = Mutation::none;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (i + 1 == argc) throw std::runtime_error("no value after " + word);
    const std::string value = argv[++i];
    if (word == "--mutation") {
      const auto at = std::find(std::begin(kMutations), std::end(kMutations), value);
      if (at == std::end(kMutations)) throw std::runtime_error("no mutation is called " + value);
      o.mutation = static_cast<Mutation>(at - std::begin(kMutations));
    } else if (word == "--seed" || word == "--seeds" || word == "--first") {
      (word == "--seed" ? o.seed : word == "--seeds" ? o.seeds : o.first) = std::stoull(value);
    } else {
      throw std::runtime_error("no option is called " + word);
    }
  }
  return o;
}

void print_problems(const World& world) {
  for (const std::string& problem : world.problems()) fmt::print("  {}\n", problem);
}

int replay(const Options& o) {
  const Scenario scenario = scenario_of(o.seed);
  fmt::print("{}", to_string(scenario));
  World world(scenario, {true, o.mutation});
  world.run();
  print_problems(world);
  fmt::print("seed {}: {}\n", o.seed, world.problems().empty() ? "all promises were kept" : "failed");
  return world.problems().empty() ? 0 : 1;
}

int run_many(const Options& o, const char* program) {
  const std::uint64_t n = o.seeds == 0 ? kShort : o.seeds;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Marks marks;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = o.first; seed < o.first + n; ++seed) {
    World world(scenario_of(seed), {false, o.mutation});
    world.run();
    marks.add(world.marks());
    if (!world.problems().empty()) {
      ++failed;
      fmt::print("failed: {} --seed {}{}\n", program, seed,
                 o.mutation == Mutation::none
                     ? ""
                     : fmt::format(" --mutation {}", kMutations[static_cast<std::size_t>(o.mutation)]));
      print_problems(world);
    }
    const std::uint64_t done = seed - o.first + 1;
    if (done % 1000 == 0 && done < n)
      fmt::print("{} of {} seeds, {} failed, {:.0f} s\n", done, n, failed, seconds());
    std::fflush(stdout);
  }
  bool all = true;
  for (std::size_t m = 0; m < static_cast<std::size_t>(Mark::count); ++m) {
    const std::uint64_t times = marks[static_cast<Mark>(m)];
    fmt::print("{:>10}  {:22} {}\n", times, kMarkTexts[m].name, kMarkTexts[m].text);
    all = all && times > 0;
  }
  const bool marks_missing = !all && kMarksCount && n >= kShort;
  if (marks_missing) fmt::print("failed: a mark was never reached\n");
  fmt::print("{} seeds from {}: {} failed, {:.1f} s\n", n, o.first, failed, seconds());
  return failed > 0 || marks_missing ? 1 : 0;
}

}  // namespace
}  // namespace talweg::chaos

int main(int argc, char** argv) {
  try {
    const talweg::chaos::Options options = talweg::chaos::parse(argc, argv);
    return options.seed > 0 ? talweg::chaos::replay(options) : talweg::chaos::run_many(options, argv[0]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "chaos: {}\n", error.what());
    return 2;
  }
}
