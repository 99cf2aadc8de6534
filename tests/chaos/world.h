// World: a whole cluster in one thread and in virtual time. Carries out a scenario and holds everything that
// happens against what is promised.
//
//   World world(scenario_of(seed), {});
//   world.run();
//   world.problems()          // empty: all promises were kept
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "chaos/calls.h"
#include "chaos/marks.h"
#include "chaos/node.h"

namespace talweg::chaos {

// Ways to break the protocols on purpose: the checks must find each.
enum class Mutation {
  none,
  silent_timer,      // the transport's timer never ends
  duplicate_frames,  // some frames arrive twice
  lose_frames,       // some never
  swap_frames,       // some in the wrong order
  no_checksums,      // of payloads
  any_group,         // frames of a group that was left go to another one
  deaf_to_failures,  // what others say about failures is not heard
  keep_placing,      // payloads go on into the memory of operations that have ended
  no_deadlines,
  no_eager_budget,  // of the scenario
  no_fences,        // barriers wait for nothing that was called before them
};
inline constexpr const char* kMutations[] = {
    "none",      "silent_timer",     "duplicate_frames", "lose_frames",  "swap_frames",     "no_checksums",
    "any_group", "deaf_to_failures", "keep_placing",     "no_deadlines", "no_eager_budget", "no_fences"};

struct WorldOptions {
  bool trace = false;  // what happens is printed
  Mutation mutation = Mutation::none;
};

class World : private sim::FlowClient {
 public:
  World(Scenario scenario, const WorldOptions& options);
  ~World() override;

  void run();
  const std::vector<std::string>& problems() const { return problems_; }
  Marks& marks() { return marks_; }
  // A digest of everything that happened.
  std::uint64_t digest() const { return digest_; }

  // For nodes and pipes.
  const Scenario& scenario() const { return scenario_; }
  sim::Simulation& simulation() { return simulation_; }
  Picoseconds now() const { return simulation_.now(); }
  std::int64_t now_ns() const { return now() / 1000; }
  Random& random() { return random_; }
  Mutation mutation() const { return options_.mutation; }
  Planning& planning() { return planning_; }
  void problem(const std::string& text);
  bool tracing() const { return options_.trace; }
  void trace(const std::string& text);
  void after(Picoseconds delay, std::function<void()> call);
  Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  bool damages(const Pipe& pipe);
  void mutate(const Pipe& pipe, std::vector<std::byte>& bytes, std::size_t begin);
  // One more frame is handed over: faults may be due.
  void on_frame(int to, const wire::Header& header);
  // A later group takes the place of an earlier one.
  void form(int group, Node& node);
  std::vector<Record>& records(int group, int member);
  // The connection's other end is told, when the network lets it, that this one is closed.
  void tell_closed(int from, int to, bool reset);
  void check_finished();
  Picoseconds patience() const { return healed_ ? 1000 * kSecond : scenario_.patience; }
  std::uint32_t id_of(int group) const { return epoch_ << 8 | static_cast<std::uint32_t>(group + 1); }

  bool reaches(int from, int to) const;

 private:
  void on_delivered(sim::FlowId flow, std::int64_t bytes, Picoseconds now) override;
  void on_writable(sim::FlowId flow, Picoseconds now) override;

  void connect();
  void tick();
  void strike(std::size_t fault);
  void cut(unsigned who, unsigned whom, int change);
  void apply_cuts();
  void heal();
  bool run_until_finished(Picoseconds horizon);
  void check_outcomes();
  void check_record(const Record& record);
  void count_outcome(const Record& record);
  void count_helped(const Record& record);
  void check_memory();
  void count_transport();

  const Scenario scenario_;
  const WorldOptions options_;
  Random random_;
  sim::Simulation simulation_;
  Planning planning_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> retired_;  // of the epoch before: events may still name them
  std::deque<std::unique_ptr<Pipe>> pipes_;
  std::vector<Pipe*> by_flow_;
  std::vector<std::vector<std::vector<Record>>> records_;  // by group and member; the last: after healing
  Picoseconds helper_lost_ = 0;
  std::vector<Record> none_;  // that an aggregator calls
  std::vector<int> cuts_;     // by pair: how many faults cut it
  std::vector<bool> struck_;  // faults that have come
  unsigned damaging_ = 0;     // whose next frame is changed
  unsigned damaging_to_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint32_t epoch_ = 1;
  bool healed_ = false;
  Marks marks_;
  std::vector<std::string> problems_;
  std::uint64_t digest_ = 0;
};

}  // namespace talweg::chaos
