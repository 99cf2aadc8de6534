// All_reduces by a stream of sums, which may be lost at any moment, at each rank at another one: whatever
// happens, all ranks have the sum, or all of what was called has failed.
#include "protocol/streaming/stream_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "memory_network.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kDeadlineNs = 1'000'000'000;
constexpr std::size_t kElements = 40;
using Vector = std::vector<std::int32_t>;

class Stream : public SumStream {
 public:
  std::shared_ptr<QueuedSum> line_up(bool /*urgent*/) override { return queue.line_up(); }
  Said say(const QueuedSum& sum, const SumTask&, const SumPrices&) override {
    return {sum.life + other_terms, word, {8, word, {}}};
  }
  std::optional<SumForm> choose(QueuedSum&, const SumTask&, std::span<const std::uint32_t> words,
                                const SumPrices& prices) override {
    heard.assign(words.begin(), words.end());
    trees_seconds = prices.trees_seconds;
    const std::uint32_t all = std::accumulate(words.begin(), words.end(), 0U);
    const std::uint32_t way = stubborn.value_or(all % kWays);
    by_trees += way == kSumForms ? 1 : 0;
    if (way == kSumForms) return std::nullopt;
    return static_cast<SumForm>(way);
  }
  void learn(const SumTask& task, const VectorSample& sample) override {
    if (sample.block != 0) learnt.emplace_back(sample.seed, *reinterpret_cast<const std::int32_t*>(task.out));
  }
  void go(QueuedSum& sum, const SumTask& task) override { queue.go(sum, task); }
  void pass(QueuedSum& sum) override { queue.pass(sum); }
  void abandon(QueuedSum& sum) override {
    queue.abandon(sum);
    sum.kept.give_back();
    if (!queue.alive()) running = nullptr;
  }
  Progress look(const QueuedSum& sum) const override { return {sum.state, sum.number}; }

  void close() {
    queue.close();
    running = nullptr;
  }

  static constexpr int kWays = kSumForms + 1;  // words that add up to kSumForms, but for these: by trees
  std::uint32_t word = 0;                      // what it says of the next sum
  std::vector<std::uint32_t> heard;            // for the last one
  double trees_seconds = 0;
  int by_trees = 0;
  std::optional<std::uint32_t> stubborn;  // chooses that, whatever all say
  std::uint32_t other_terms = 0;
  std::vector<std::pair<std::uint64_t, std::int32_t>> learnt;  // what was said, and the sum's first element
  SumQueue queue;
  std::shared_ptr<QueuedSum> running;
  Vector sent;  // what of the running sum is known to the switch
};

// A switch, and each rank's connection to it. As the real one, it does not look at what is summed.
class Switch {
 public:
  Switch(MemoryNetwork& net, Random& random) : net_(net), random_(random) {
    for (int r = 0; r < net.size(); ++r) streams.push_back(std::make_shared<Stream>());
  }

  // One life for all ranks, each of which has ended the one before it.
  void open() {
    for (const auto& stream : streams) stream->close();
    ++life_;
    whole_ = true;
    sums_.clear();
    contributed_.clear();
    done_.clear();
    for (int r = 0; r < net_.size(); ++r) {
      streams[static_cast<std::size_t>(r)]->queue.open(life_);
      look(r);
    }
  }
  // It ends. Ranks notice in step().
  void end() { whole_ = false; }
  bool whole() const { return whole_; }
  // Some rank has a sum that others do not have yet.
  bool done_on_some() const {
    return std::ranges::any_of(done_, [&](const auto& sum) { return sum.second < net_.size(); });
  }

  // Something happens at one rank. False: nothing could.
  bool step() {
    const auto r = static_cast<int>(random_.below(static_cast<std::uint64_t>(net_.size())));
    Stream& stream = *streams[static_cast<std::size_t>(r)];
    if (!stream.queue.alive()) {
      whole_ = false;
      return false;
    }
    if (stream.running == nullptr && (stream.running = stream.queue.next()) != nullptr) {
      Vector& sum = sums_[stream.running->number];
      sum.resize(kElements);
      stream.sent.resize(kElements);
      std::memcpy(stream.sent.data(), stream.running->task.in, stream.running->task.bytes);
      for (std::size_t i = 0; i < kElements; ++i) sum[i] += stream.sent[i];
      ++contributed_[stream.running->number];
      return true;
    }
    if (!whole_) {
      if (random_.below(4) == 0) {
        stream.close();
        look(r);
      }
      return true;
    }
    if (stream.running == nullptr) return false;
    const SumTask& task = stream.running->task;
    if (contributed_[stream.running->number] < net_.size()) return false;
    const Vector& sum = sums_[stream.running->number];
    if (random_.below(3) == 0) {  // a part of the result
      stream.running->kept.keep(0, task.bytes / 2);
      std::memcpy(task.out, sum.data(), task.bytes / 2);
      return true;
    }
    stream.running->kept.keep(0, task.bytes);
    std::memcpy(task.out, sum.data(), task.bytes);
    ++done_[stream.running->number];
    stream.queue.done(*std::exchange(stream.running, nullptr));
    ++finished;
    look(r);
    return true;
  }

  std::vector<std::shared_ptr<Stream>> streams;
  int finished = 0;  // sums, at one rank

 private:
  void look(int rank) { net_.session(rank).look_again(0); }

  MemoryNetwork& net_;
  Random& random_;
  bool whole_ = false;
  std::uint32_t life_ = 0;
  std::map<std::uint32_t, Vector> sums_;
  std::map<std::uint32_t, int> contributed_, done_;  // by sum: at how many ranks
};

// One call of all ranks: what each has, and gets.
struct Called {
  Called(int ranks, Random& random, bool in_place)
      : results(static_cast<std::size_t>(ranks)), sum(kElements) {
    for (int r = 0; r < ranks; ++r) {
      Vector mine(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        mine[i] = static_cast<std::int32_t>(random.below(1'000'000));
        sum[i] += mine[i];
      }
      in.push_back(mine);
      out.push_back(in_place ? mine : Vector(kElements, -1));
    }
    place = in_place;
  }
  Operation operation(int rank, MemoryNetwork& net, const std::shared_ptr<SumStream>& stream, bool wanted,
                      ReduceOp reduction = ReduceOp::sum) {
    const auto r = static_cast<std::size_t>(rank);
    const forest::Request q =
        forest::even_request(Collective::all_reduce, net.size(), 0, static_cast<std::int64_t>(kElements), 4);
    Operation made = make_operation({.op = Collective::all_reduce,
                                     .type = DataType::i32,
                                     .reduction = reduction,
                                     .in = place ? out[r].data() : in[r].data(),
                                     .out = out[r].data()},
                                    rank, q);
    made.deadline_ns = kDeadlineNs;
    made.user = &results[r];
    made.plan = make_stream_plan(net.plan(q, planner, rank, 16), stream, wire::AggregationFormat::i32, wanted,
                                 {.trees_seconds = 0.25});
    return made;
  }
  std::vector<Vector> in, out;
  std::vector<Result> results;
  Vector sum;
  bool place = false;
  const char* planner = "ring";
};

struct Marks {
  int by_stream = 0, in_sum = 0, done_on_some = 0, chose_trees = 0;
  int fallbacks = 0, trees = 0;  // calls on a rank, as it says
};

// Several calls at a time; the switch comes and goes.
void run_seed(std::uint64_t seed, Marks& marks) {
  Random random(seed, 0x57ea);
  const int ranks = 2 + static_cast<int>(random.below(4));
  MemoryNetwork net(ranks, seed);
  Switch at(net, random);
  std::deque<Called> calls;
  for (int c = 0; c < 6; ++c) calls.emplace_back(ranks, random, random.below(2) == 0);
  std::vector<std::size_t> next(static_cast<std::size_t>(ranks), 0);
  const std::uint64_t loss = random.below(3) == 0 ? 0 : 20 + random.below(300);
  const bool divided = random.below(4) == 0;
  const bool unwanted = random.below(4) == 0;
  at.open();
  const auto ended = [&] {
    return std::ranges::all_of(
        calls, [](const Called& call) { return std::ranges::all_of(call.results, &Result::done); });
  };
  for (int steps = 0; steps < 100'000 && !ended(); ++steps) {
    net.step();
    const auto r = static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(ranks)));
    if (next[r] < calls.size() && random.below(8) == 0) {
      const bool wanted = !unwanted || random.below(8) != 0;
      at.streams[r]->word = static_cast<std::uint32_t>(random.below(Stream::kWays));
      net.session(static_cast<int>(r))
          .start(calls[next[r]++].operation(static_cast<int>(r), net, at.streams[r], wanted,
                                            divided ? ReduceOp::avg : ReduceOp::sum));
    }
    at.step();
    if (loss != 0 && at.whole() && random.below(loss) == 0) {
      const auto runs = [](const auto& stream) { return stream->running != nullptr; };
      marks.in_sum += std::ranges::any_of(at.streams, runs) ? 1 : 0;
      marks.done_on_some += at.done_on_some() ? 1 : 0;
      at.end();
    }
    if (!at.whole() && random.below(30) == 0 &&
        std::ranges::none_of(at.streams, [](const auto& s) { return s->queue.alive(); }))
      at.open();
  }
  net.run();
  for (Called& call : calls)
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      ASSERT_TRUE(call.results[r].done) << "seed " << seed << " rank " << r;
      ASSERT_TRUE(call.results[r].outcome.ok) << "seed " << seed << ": " << call.results[r].outcome.text;
      Vector expected = call.sum;
      if (divided)
        for (std::int32_t& x : expected) x /= ranks;
      ASSERT_EQ(call.out[r], expected) << "seed " << seed << " rank " << r;
      const auto summed = [&](SumWay way) { return way < SumWay::trees ? way : SumWay::trees; };
      const SumWay way = call.results[r].outcome.way;
      if (!unwanted) {
        ASSERT_EQ(summed(way), summed(call.results[0].outcome.way)) << "seed " << seed;
      }
      marks.fallbacks += way == SumWay::fallback ? 1 : 0;
      marks.trees += way == SumWay::trees ? 1 : 0;
    }
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(net.session(r).in_flight(), 0U);
    EXPECT_EQ(net.node(r).pool.bytes_in_use(), 0U);
  }
  marks.by_stream += at.finished;
  for (const auto& stream : at.streams) marks.chose_trees += stream->by_trees;
}

TEST(StreamRun, AllRanksHaveTheSumWheneverTheSwitchIsLost) {
  Marks marks;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) run_seed(seed, marks);
  EXPECT_GT(marks.by_stream, 10'000);
  EXPECT_GT(marks.chose_trees, 3'000);
  EXPECT_GT(marks.in_sum, 500);
  EXPECT_GT(marks.done_on_some, 100);
  EXPECT_GT(marks.fallbacks, 1'000);
  EXPECT_GT(marks.trees, 3'000);
  EXPECT_LE(marks.trees, marks.chose_trees);
}

struct TwoRanks : ::testing::Test {
  void start(Called& called, int rank, ReduceOp reduction = ReduceOp::sum) {
    net.session(rank).start(
        called.operation(rank, net, at.streams[static_cast<std::size_t>(rank)], true, reduction));
  }
  void run() {
    for (int idle = 0; idle < 100;) {
      const bool moved = net.step();
      idle = at.step() || moved ? 0 : idle + 1;
    }
  }
  Random random{3, 4};
  MemoryNetwork net{2, 1};
  Switch at{net, random};
  Called call{2, random, true};
};

// Every rank chooses by the same words, in the order of ranks, and learns what the sum was.
TEST_F(TwoRanks, TheFormIsChosenByWhatBothSay) {
  for (const std::uint32_t other : {0U, 1U, 2U}) {
    at.open();
    Called called(2, random, other % 2 == 0);
    at.streams[0]->word = 4;
    at.streams[1]->word = 4 + other;
    start(called, 0);
    start(called, 1);
    while (net.step()) {
    }
    for (const auto& stream : at.streams) {
      EXPECT_THAT(stream->heard, ::testing::ElementsAre(4, 4 + other));
      EXPECT_EQ(stream->trees_seconds, 0.25);
      EXPECT_EQ(stream->queue.next()->task.form, static_cast<SumForm>(other));
      stream->queue.close();
      net.session(0).look_again(0);
      net.session(1).look_again(0);
    }
    run();  // by trees
    for (std::size_t r : {0U, 1U}) {
      EXPECT_EQ(called.out[r], called.sum);
      EXPECT_EQ(at.streams[r]->learnt.back(), std::pair(std::uint64_t{at.streams[r]->word}, called.sum[0]));
      EXPECT_EQ(at.streams[r]->learnt.size(), 1 + other);
    }
  }
}

TEST_F(TwoRanks, WhereBothChooseTreesTheLifeGoesOn) {
  at.open();
  at.streams[0]->word = 1;
  at.streams[1]->word = 2;
  start(call, 0);
  start(call, 1);
  run();
  for (std::size_t r : {0U, 1U}) {
    EXPECT_EQ(call.out[r], call.sum);
    EXPECT_EQ(at.streams[r]->by_trees, 1);
    EXPECT_EQ(call.results[r].outcome.way, SumWay::trees);
    EXPECT_EQ(at.streams[r]->learnt.size(), 1U);
    EXPECT_TRUE(at.streams[r]->queue.alive());
    at.streams[r]->word = 0;
  }
  Called next(2, random, false);
  start(next, 0);
  start(next, 1);
  run();
  for (std::size_t r : {0U, 1U}) {
    EXPECT_EQ(next.out[r], next.sum);
    EXPECT_EQ(next.results[r].outcome.way, SumWay::dense);
  }
  EXPECT_EQ(at.finished, 2);
}

// What must not be: the one takes part in a sum, and the other one goes by trees.
TEST_F(TwoRanks, WhereTheyChooseDifferentlyAllGoByTreesInTheEnd) {
  for (const std::size_t by_trees : {0U, 1U})
    for (const char* const trees : {"binomial", "ring", "recursive_doubling"}) {
      at.open();
      Called called(2, random, by_trees == 0);
      called.planner = trees;
      Stream& other = *at.streams[1 - by_trees];
      at.streams[by_trees]->stubborn = kSumForms;
      other.stubborn = 0;
      start(called, 0);
      start(called, 1);
      while (net.step()) {
      }
      // A sum that others were in in its place.
      if (const auto sum = other.queue.next()) {
        sum->kept.keep(0, sum->task.bytes);
        std::memset(sum->task.out, 7, sum->task.bytes);
        other.queue.done(*sum);
        net.session(static_cast<int>(1 - by_trees)).look_again(0);
      }
      run();
      for (std::size_t r : {0U, 1U}) {
        ASSERT_TRUE(called.results[r].done) << trees;
        ASSERT_TRUE(called.results[r].outcome.ok) << called.results[r].outcome.text;
        EXPECT_EQ(called.out[r], called.sum);
        at.streams[r]->stubborn.reset();
      }
    }
}

// A frame of the trees may come before the last word; what was chosen is counted and remembered all the same.
TEST(StreamRun, WhoHearsOfTreesFirstChoosesThemToo) {
  int all = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed, 6);
    MemoryNetwork net(3, seed);
    Switch at(net, random);
    Called call(3, random, false);
    at.open();
    at.streams[1]->word = kSumForms;
    for (int r = 0; r < 3; ++r)
      net.session(r).start(call.operation(r, net, at.streams[static_cast<std::size_t>(r)], true));
    net.run();
    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(call.out[r], call.sum);
      ASSERT_LE(at.streams[r]->by_trees, 1);
      all += at.streams[r]->by_trees;
    }
  }
  EXPECT_GE(all, 570) << "but for votes that come after the sum";
}

TEST_F(TwoRanks, OfMeansOfIntegersByTreesNothingIsLearnt) {
  at.open();
  Called again(2, random, false);
  for (const ReduceOp reduction : {ReduceOp::avg, ReduceOp::sum}) {
    at.streams[0]->word = kSumForms;
    Called& called = reduction == ReduceOp::avg ? call : again;
    start(called, 0, reduction);
    start(called, 1, reduction);
    run();
    for (std::size_t r : {0U, 1U}) {
      ASSERT_TRUE(called.results[r].outcome.ok);
      EXPECT_EQ(at.streams[r]->learnt.size(), reduction == ReduceOp::avg ? 0U : 1U);
    }
  }
}

TEST_F(TwoRanks, OnOtherTermsNobodyChooses) {
  at.open();
  at.streams[1]->other_terms = 1;
  start(call, 0);
  start(call, 1);
  run();
  for (std::size_t r : {0U, 1U}) {
    EXPECT_EQ(call.out[r], call.sum);
    EXPECT_TRUE(at.streams[r]->heard.empty());
    EXPECT_TRUE(at.streams[r]->queue.alive());
  }
  EXPECT_EQ(at.finished, 0);
}

TEST_F(TwoRanks, NothingIsWrittenWhereTheyCallDifferentThings) {
  at.open();
  Called differ(2, random, false);
  start(differ, 0);
  start(differ, 1, ReduceOp::avg);
  run();
  for (std::size_t r : {0U, 1U}) {
    EXPECT_EQ(differ.results[r].outcome.code, ErrorCode::mismatch) << differ.results[r].outcome.text;
    EXPECT_EQ(differ.out[r], Vector(kElements, -1));
  }
  EXPECT_EQ(at.finished, 0);
  Called later(2, random, true);
  start(later, 0);
  start(later, 1);
  run();
  for (std::size_t r : {0U, 1U}) EXPECT_EQ(later.out[r], later.sum);
}

TEST_F(TwoRanks, ACallThatFailsOnOneRankEndsTheLifeAndTheNextGoByTrees) {
  at.open();
  Called late(2, random, true), next(2, random, true);
  start(late, 0);
  run();
  net.session(0).on_time(kDeadlineNs);
  EXPECT_EQ(late.results[0].outcome.code, ErrorCode::timeout);
  EXPECT_THAT(late.results[0].outcome.text, HasSubstr("rank 1 (h1) has not started it"));
  EXPECT_FALSE(at.streams[0]->queue.alive());
  start(late, 1);
  start(next, 1);
  start(next, 0);
  run();
  EXPECT_FALSE(late.results[1].outcome.ok);
  for (std::size_t r : {0U, 1U}) {
    ASSERT_TRUE(next.results[r].outcome.ok) << next.results[r].outcome.text;
    EXPECT_EQ(next.out[r], next.sum);
  }
}

// Should a life ever be out of step, its sums are not taken.
TEST_F(TwoRanks, ASumThatWasAnotherOneOnAnotherRankIsNotTaken) {
  at.open();
  SumQueue& ahead = at.streams[1]->queue;
  std::byte other[4];
  ahead.go(*ahead.line_up(), {other, other, sizeof other, wire::AggregationFormat::i32});
  ahead.done(*ahead.next());
  start(call, 0);
  start(call, 1);
  while (net.step()) {
  }
  for (int r : {0, 1}) {
    SumQueue& queue = at.streams[static_cast<std::size_t>(r)]->queue;
    const auto sum = queue.next();
    ASSERT_NE(sum, nullptr);
    sum->kept.keep(0, sum->task.bytes);
    std::memset(sum->task.out, 7, sum->task.bytes);
    queue.done(*sum);
    net.session(r).look_again(0);
  }
  run();
  for (std::size_t r : {0U, 1U}) {
    ASSERT_TRUE(call.results[r].outcome.ok) << call.results[r].outcome.text;
    EXPECT_EQ(call.out[r], call.sum);
    EXPECT_FALSE(at.streams[r]->queue.alive());
  }
}

TEST_F(TwoRanks, AVoteThatMakesNoSenseIsDamage) {
  at.open();
  start(call, 0);
  const Operation theirs = call.operation(1, net, at.streams[1], true);
  net.session(0).on_frame(1, encode(wire::CallId{1, 0, theirs.signature}, wire::Own{1, 0, 1, 0}), nullptr);
  EXPECT_EQ(call.results[0].outcome.code, ErrorCode::corrupted);
  EXPECT_THAT(call.results[0].outcome.text, HasSubstr("a vote that a sum is done before"));
  EXPECT_FALSE(at.streams[0]->queue.alive());
}

TEST_F(TwoRanks, ARankThatIsLostInASumFailsIt) {
  at.open();
  start(call, 0);
  start(call, 1);
  while (net.step()) {
  }
  net.session(0).on_peer_gone(1, ErrorCode::peer_failed, "its connection was closed");
  EXPECT_EQ(call.results[0].outcome.code, ErrorCode::peer_failed);
  EXPECT_THAT(call.results[0].outcome.text, HasSubstr("rank 1 (h1) failed"));
  EXPECT_FALSE(at.streams[0]->queue.alive()) << "its memory is the caller's again";
}

// The one who leaves has done all that it had to do for the sum, and not what the trees need of it then.
TEST(StreamRun, ARankThatLeavesAfterItsVoteIsNotWaitedForByTrees) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed, 5);
    MemoryNetwork net(3, seed);
    Switch at(net, random);
    Called call(3, random, seed % 2 == 0);
    at.open();
    for (int r = 0; r < 3; ++r)
      net.session(r).start(call.operation(r, net, at.streams[static_cast<std::size_t>(r)], true));
    net.run();
    SumQueue& queue = at.streams[2]->queue;
    queue.done(*queue.next());
    net.session(2).look_again(0);
    for (const int other : {0, 1}) net.session(2).leave(other);
    net.run();
    for (const int other : {0, 1}) ASSERT_FALSE(call.results[static_cast<std::size_t>(other)].done);
    // The others lose the switch: 0 by itself, 1 hears it from 0.
    at.streams[0]->close();
    net.session(0).look_again(0);
    net.run();
    for (const std::size_t other : {0U, 1U}) {
      ASSERT_TRUE(call.results[other].done) << "seed " << seed;
      EXPECT_EQ(call.results[other].outcome.code, ErrorCode::peer_failed);
      EXPECT_THAT(call.results[other].outcome.text, HasSubstr("rank 2 (h2) has left the group"));
    }
  }
}

}  // namespace
}  // namespace talweg::protocol
