// Workers and switches of streaming aggregation in virtual time, over a network that loses, repeats, delays
// and overtakes; everything from a seed. Results are held against a sum that was made in one place, one
// worker after the other.
//
//   AggregationWorld world(seed, AggregationMutation::none);
//   world.run();
//   world.problems()          // empty: every promise was kept
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "protocol/aggregation/switch.h"
#include "protocol/aggregation/worker.h"

namespace talweg::protocol {

// Ways to break the protocol on purpose, on the way between workers and switches: the checks must find each.
enum class AggregationMutation : std::uint8_t {
  none,
  forget_epochs,      // what comes of an earlier epoch counts as of this one
  forget_operations,  // what comes of an earlier operation counts as of the present one
  forget_blocks,      // a contribution that comes twice counts as of the column's next round
  flip_versions,      // of some contributions
  swap_workers,       // some contributions count as another worker's
  lose_data,          // some contributions arrive as adverts
  pass_over,          // some results go on too far
  raise_exponents,    // some results have a larger exponent, for one worker
  damage_sums,        // a bit of some results
  silent_timers,      // nothing is sent again after a time, nor asked for
  deaf_worker,        // one worker hears no results
};
inline constexpr std::size_t kAggregationMutations = 12;

// What must be seen at least once in the short run.
#define TALWEG_AGGREGATION_MARKS(X)                                        \
  X(lost, "a datagram was lost")                                           \
  X(repeated, "a datagram came twice")                                     \
  X(overtaken, "a datagram came after one that was sent later")            \
  X(timeout, "a round took long, and a worker asked what it waits for")    \
  X(gap, "a worker named a result that had not come")                      \
  X(asked_for, "a worker asked, and the switch had missed its part")       \
  X(named, "a switch named a contribution that had not come")              \
  X(sent_again, "a result was sent again to one worker")                   \
  X(duplicate, "a contribution came again while its round was filling")    \
  X(late, "a contribution came after its round had ended")                 \
  X(late_result, "a result came to a worker that had it")                  \
  X(other_epoch, "a datagram of an earlier epoch came to a switch")        \
  X(other_epoch_worker, "a datagram of an earlier epoch came to a worker") \
  X(crash, "a worker died and came back in a new epoch")                   \
  X(held_back, "a job exceeded its rate and was told when to go on")       \
  X(delayed, "a job's results exceeded their rate and waited")             \
  X(in_place, "a sum overwrote its input")                                 \
  X(advert, "a worker said only what its next block is")                   \
  X(passed_over, "blocks that are zero everywhere were not sent")          \
  X(fewer_columns, "a sparse sum had fewer columns than there are")        \
  X(part_of_slot, "columns of a slot ended apart from the others")         \
  X(not_finite, "a block with an infinity or NaN was summed")              \
  X(flushed, "a block too small for its scale was summed")                 \
  X(pairs, "elements that are not zero were summed by their keys")         \
  X(coded, "floats were summed as codes of few bits with scales")          \
  X(rows, "a sparse tensor was summed by rows")                            \
  X(long_rows, "rows were longer than a block")                            \
  X(no_rows, "a worker of others that had rows had none")                  \
  X(cut, "pairs that the switch had no room for were sent again")          \
  X(ordered, "floats were summed in the order of workers")                 \
  X(tree, "a sum was made by two levels of switches")                      \
  X(passed_again, "a switch sent its part up again")                       \
  X(busy_above, "a switch was too busy for a rack's, and said when")       \
  X(two_jobs, "two jobs shared a switch")                                  \
  X(alone, "a job had one worker")                                         \
  X(many_workers, "a job had more workers than a word has bits")           \
  X(empty, "an empty tensor was summed")                                   \
  X(short_tensor, "a tensor had fewer blocks than there are columns")

enum class AggregationMark {
#define TALWEG_AGGREGATION_ENUMERATOR(mark, text) mark,
  TALWEG_AGGREGATION_MARKS(TALWEG_AGGREGATION_ENUMERATOR)
#undef TALWEG_AGGREGATION_ENUMERATOR
      count
};
struct AggregationMarkText {
  const char* name;
  const char* text;
};
inline constexpr AggregationMarkText kAggregationMarkTexts[] = {
#define TALWEG_AGGREGATION_TEXT(mark, text) {#mark, text},
    TALWEG_AGGREGATION_MARKS(TALWEG_AGGREGATION_TEXT)
#undef TALWEG_AGGREGATION_TEXT
};
using AggregationMarks = std::array<std::uint64_t, static_cast<std::size_t>(AggregationMark::count)>;

class AggregationWorld {
 public:
  AggregationWorld(std::uint64_t seed, AggregationMutation mutation);
  ~AggregationWorld();

  void run();
  const std::vector<std::string>& problems() const { return problems_; }
  const AggregationMarks& marks() const { return marks_; }
  std::string describe() const;  // what the seed decided

 private:
  struct Tensor;
  struct Member;
  struct Job;
  struct Box;

  void plan_job(std::size_t number);
  void plan_sums(Job& job);
  void plan_rows(Job& job);
  void open(Job& job);
  void next_sum(Job& job, Member& member);
  static Sum begin_rows(const Tensor& tensor, Member& member);
  void end_rows(const Tensor& tensor, Member& member);
  void expect(Job& job, std::size_t sum);
  static void expect_coded(const Job& job, Tensor& tensor, std::size_t first);
  void check(Job& job, Member& member, std::size_t sum);
  void take_back(const Job& job, Member& member, std::size_t sum);
  void crash(Job& job);
  void deliver_to_box(Box& box, const wire::DatagramHeader& header, const std::vector<std::byte>& payload,
                      Peer from);
  void arm(Box& box);
  void perform(Box& box, std::span<const SwitchAction> actions);
  void deliver_to_member(Job& job, std::size_t member, std::uint64_t life, wire::DatagramHeader header,
                         std::vector<std::byte> payload);
  void carry(std::function<void()> arrival);
  void arm(Job& job, Member& member);
  void after(std::int64_t delay_ns, std::function<void()> event);
  void mutate_up(Job& job, wire::DatagramHeader& header, std::vector<std::byte>& payload);
  void mutate_down(Job& job, std::size_t member, std::vector<std::byte>& payload);
  void hit(AggregationMark mark, std::uint64_t times = 1) { marks_[static_cast<std::size_t>(mark)] += times; }
  void problem(std::string text);
  bool finished() const;
  void count();
  Box& box_of(const Job& job, std::size_t member);

  const std::uint64_t seed_;
  const AggregationMutation mutation_;
  Random random_;
  std::int64_t now_ns_ = 0;
  std::uint64_t events_made_ = 0;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;
  double loss_ = 0, repeat_ = 0;
  std::int64_t delay_ns_ = 0, jitter_ns_ = 0;
  std::int64_t last_arrival_ns_ = 0;
  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::unique_ptr<Job>> jobs_;
  AggregationMarks marks_{};
  std::vector<std::string> problems_;
};

}  // namespace talweg::protocol
