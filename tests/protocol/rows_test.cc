// Sums of sparse tensors by rows: how rows are cut and dealt out, and what a worker with a few of very many
// says. Sums under loss: aggregation_seeds_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "protocol/aggregation/own_rows.h"
#include "protocol/aggregation/row_sums.h"
#include "protocol/aggregation/worker.h"
#include "protocol/one_switch.h"

namespace talweg::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kF32 = AggregationFormat::f32;

TEST(RowUnits, FillBlocksAndAreAboutAsLongAsEachOther) {
  for (std::size_t width = 1; width < 100; ++width)
    for (std::size_t block = 1; block < 40; ++block) {
      const RowUnits units = units_of(width, kF32, block);
      EXPECT_LE(units.length, block);
      EXPECT_EQ(units.per_row, (width + block - 1) / block) << "no more than it takes";
      EXPECT_LT((units.per_row - 1) * units.length, width);
      EXPECT_GE(units.per_row * units.length, width);
    }
  EXPECT_EQ(units_of(7, AggregationFormat::pairs, 256).per_row, 7U);
  EXPECT_EQ(units_of(7, AggregationFormat::pairs, 256).length, 1U);
}

void add(RowSums& sums, std::uint64_t unit, const std::vector<float>& values) {
  std::memcpy(sums.add(unit), values.data(), values.size() * sizeof(float));
}
std::vector<float> floats(const RowSums::Summed& summed, std::size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), summed.values.get(), count * sizeof(float));
  return values;
}

TEST(RowSums, AreSortedWhateverTheOrderInWhichPartsCome) {
  RowSums sums;
  sums.reset(kF32, {2, 2}, 3);
  add(sums, 2 * 9 + 1, {3});
  add(sums, 2 * 4, {4, 5});
  add(sums, 2 * 9, {1, 2});
  add(sums, 2 * 4 + 1, {6});
  const auto summed = sums.finish(100);
  ASSERT_TRUE(summed);
  EXPECT_THAT(summed->keys, ElementsAre(104, 109));
  EXPECT_THAT(floats(*summed, 6), ElementsAre(4, 5, 6, 1, 2, 3));
  const auto nothing = sums.finish();
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->keys.empty());
}

// As columns of several lanes bring them: each its own in order, and these in any; of as many keys as there
// may be.
TEST(RowSums, AreSortedOutOfManyColumns) {
  Random random(77);
  for (int round = 0; round < 40; ++round) {
    constexpr std::size_t kParts = 3;
    const std::uint64_t limit = round % 2 == 0 ? 300 : Rows::kMostKeys;
    std::set<std::int64_t> keys;
    for (std::uint64_t i = random.below(4000); i > 0; --i)
      keys.insert(static_cast<std::int64_t>(random.below(limit)));
    std::vector<std::vector<std::uint64_t>> columns(1 + random.below(30));
    for (const std::int64_t key : keys)
      for (std::size_t part = 0; part < kParts; ++part) {
        const std::uint64_t unit = static_cast<std::uint64_t>(key) * kParts + part;
        columns[unit % columns.size()].push_back(unit);
      }
    RowSums sums;
    sums.reset(kF32, {kParts, 1}, kParts);
    std::vector<std::size_t> taken(columns.size());
    for (std::size_t left = kParts * keys.size(); left > 0;) {
      const std::size_t c = random.below(columns.size());
      if (taken[c] == columns[c].size()) continue;
      const std::uint64_t unit = columns[c][taken[c]++];
      add(sums, unit, {static_cast<float>(unit % 100'000)});
      --left;
    }
    const auto summed = sums.finish();
    ASSERT_TRUE(summed);
    EXPECT_TRUE(std::ranges::equal(summed->keys, keys));
    const std::vector<float> values = floats(*summed, kParts * keys.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t unit = static_cast<std::uint64_t>(summed->keys[i / kParts]) * kParts + i % kParts;
      ASSERT_EQ(values[i], static_cast<float>(unit % 100'000));
    }
  }
}

TEST(RowSums, OfPartsThatAreNoWholeRowsAreNone) {
  for (const std::vector<std::uint64_t>& units :
       std::vector<std::vector<std::uint64_t>>{{4}, {5}, {4, 5, 6}, {5, 6}, {4, 4}, {4, 5, 4, 5}, {4, 7}}) {
    RowSums sums;
    sums.reset(kF32, {2, 1}, 2);
    for (const std::uint64_t unit : units) add(sums, unit, {1});
    EXPECT_FALSE(sums.finish()) << testing::PrintToString(units);
  }
}

// Among so many whole rows that they are put in order digit by digit.
TEST(RowSums, OfVeryManyPartsThatAreNoWholeRowsAreNone) {
  constexpr std::uint64_t kWhole = 3000;  // of two units; the keys are 0, 5, 10, ...
  const auto finished = [&](const std::vector<std::uint64_t>& others) {
    RowSums sums;
    sums.reset(kF32, {2, 1}, 2);
    for (std::uint64_t row = kWhole; row-- > 0;)
      for (const std::uint64_t unit : {10 * row + 1, 10 * row}) add(sums, unit, {static_cast<float>(unit)});
    for (const std::uint64_t unit : others) add(sums, unit, {1});
    return sums.finish();
  };
  constexpr std::uint64_t kFar = std::uint64_t{1} << 32;
  for (const std::vector<std::uint64_t>& units :
       std::vector<std::vector<std::uint64_t>>{{4},
                                               {5},
                                               {0},
                                               {1},
                                               {0, 1},
                                               {1000, 1001},
                                               {3, 4},
                                               {4, 4},
                                               {kFar},
                                               {kFar, kFar},
                                               {kFar + 1, kFar + 2}})
    EXPECT_FALSE(finished(units)) << testing::PrintToString(units);
  const auto summed = finished({kFar + 1, 4, kFar, 5});
  ASSERT_TRUE(summed);
  ASSERT_EQ(summed->keys.size(), kWhole + 2);
  EXPECT_EQ(summed->keys[1], 2);
  EXPECT_EQ(summed->keys[2], 5);
  EXPECT_EQ(summed->keys.back(), std::int64_t{1} << 31);
  const std::vector<float> values = floats(*summed, 2 * kWhole);
  EXPECT_THAT(std::vector<float>(values.begin() + 4, values.begin() + 6), ElementsAre(10, 11));
}

TEST(RowSums, AreRightBeyondOneChunk) {
  RowSums sums;
  constexpr std::size_t kRows = 10'000, kWidth = 64;
  sums.reset(kF32, {1, kWidth}, kWidth);
  for (std::size_t row = kRows; row-- > 0;)
    add(sums, 3 * row, std::vector<float>(kWidth, static_cast<float>(row)));
  const auto summed = sums.finish();
  ASSERT_TRUE(summed);
  const std::vector<float> values = floats(*summed, kRows * kWidth);
  for (std::size_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(summed->keys[row], static_cast<std::int64_t>(3 * row));
    ASSERT_EQ(values[row * kWidth], static_cast<float>(row));
    ASSERT_EQ(values[row * kWidth + kWidth - 1], static_cast<float>(row));
  }
}

TEST(OwnRows, AreEachInOneColumnOfOneLane) {
  Random random(51);
  for (int round = 0; round < 300; ++round) {
    std::set<std::int64_t> chosen;
    for (std::size_t i = random.below(50); i > 0; --i)
      chosen.insert(1000 + static_cast<std::int64_t>(random.below(200)));
    const std::vector<std::int64_t> keys(chosen.begin(), chosen.end());
    Rows rows;
    rows.keys = keys;
    rows.limit = 200;
    rows.first = 1000;
    rows.width = 1 + random.below(9);
    const RowUnits units = units_of(rows.width, kF32, 1 + random.below(5));
    DealtRows::Deal deal;
    RowSums sums;
    rows.sums = random.below(2) == 0 ? &sums : nullptr;
    deal.granule = random.below(2) == 0 ? 1 : 64;
    deal.lanes = static_cast<std::uint16_t>(1 + random.below(3));
    deal.columns = 1 + random.below(7);
    std::set<std::uint64_t> found;
    const DealtRows* dealt = nullptr;
    for (std::uint16_t lane = 0; lane < deal.lanes; ++lane) {
      OwnRows own;
      own.reset(rows, units, deal, lane);
      if (lane > 0) {
        EXPECT_EQ(sums.dealt().get(), dealt) << "dealt out once for all lanes";
      }
      dealt = sums.dealt().get();
      for (std::uint64_t column = 0; column < deal.columns; ++column) {
        std::uint64_t before = 0;
        std::size_t number = 0;
        for (const std::uint64_t place : own.places(column)) {
          const std::uint64_t unit = own.unit_at(place);
          EXPECT_TRUE(found.insert(unit).second);
          EXPECT_EQ(unit / deal.granule % deal.lanes, lane);
          EXPECT_EQ(unit / deal.granule / deal.lanes % deal.columns, column);
          EXPECT_EQ(own.before(column, unit), number);
          EXPECT_EQ(own.before(column, unit + 1), ++number);
          EXPECT_TRUE(number == 1 || unit > before);
          before = unit;
          const std::size_t row = place / units.per_row;
          EXPECT_EQ(own.element_at(place), row * rows.width + unit % units.per_row * units.length);
          EXPECT_LE(own.element_at(place) + own.length_of(unit), (row + 1) * rows.width);
        }
      }
    }
    EXPECT_EQ(found.size(), keys.size() * units.per_row);
  }
}

// The same memory for keys and values, as of a caller that fills its buffers anew for each sum.
TEST(OwnRows, AreDealtOutAnewForEachSum) {
  std::vector<std::int64_t> keys{0, 1, 2, 3};
  RowSums sums;
  Rows rows;
  rows.keys = keys;
  rows.limit = 100;
  rows.sums = &sums;
  const auto unit_in_column_1 = [&] {
    OwnRows own;
    own.reset(rows, {1, 1}, {1, 1, 50}, 0);
    return own.places(1).empty() ? std::uint64_t{0} : own.unit_at(own.places(1)[0]);
  };
  sums.reset(kF32, {1, 1}, 1);
  EXPECT_EQ(unit_in_column_1(), 1U);
  EXPECT_TRUE(sums.finish());
  keys = {40, 51, 62, 73};
  ASSERT_EQ(keys.data(), rows.keys.data());
  EXPECT_EQ(unit_in_column_1(), 51U);
  keys = {2, 3, 4, 5};
  sums.reset(kF32, {1, 1}, 1);  // the one before has failed
  EXPECT_EQ(unit_in_column_1(), 0U);
}

// Workers of a job of one lane, and a switch that loses nothing.
class RowsWorld {
 public:
  RowsWorld(std::uint16_t workers, const JobTerms& terms) : one_(terms) {
    for (std::uint16_t w = 0; w < workers; ++w) {
      sinks_.push_back(std::make_unique<Sink>(*this));
      workers_.push_back(std::make_unique<AggregationWorker>(
          WorkerTerms{1, 1, w, workers, 0, terms.slots, terms.columns, terms.block, {}}, *sinks_.back()));
    }
  }
  // Of worker w the rows `keys[w]`, in each element of which is the key and w.
  void sum(const std::vector<std::vector<std::int64_t>>& keys, Sum sum, std::uint64_t limit,
           std::size_t width) {
    std::vector<std::vector<float>> values(keys.size());
    std::vector<Rows> rows(keys.size());
    sums_ = std::vector<RowSums>(keys.size());
    std::uint64_t in_all = 0;
    for (const auto& own : keys) in_all += own.size();
    for (std::size_t w = 0; w < keys.size(); ++w) {
      for (const std::int64_t key : keys[w])
        values[w].insert(values[w].end(), width, static_cast<float>(key) + static_cast<float>(w));
      rows[w] = {keys[w], std::as_bytes(std::span(values[w])).data(), limit, width, in_all, &sums_[w]};
      sums_[w].reset(sum.format, units_of(width, sum.format, sum.block), width);
      sum.count = rows[w].elements();
      sum.sparse = true;
      sum.rows = &rows[w];
      workers_[w]->start(sum, ++operation_, 1'000'000'000, 0);
      --operation_;
    }
    ++operation_;
    while (!under_way_.empty()) {
      const Datagram datagram = std::move(under_way_.front());
      under_way_.pop_front();
      if (datagram.to >= 0) {
        workers_[static_cast<std::size_t>(datagram.to)]->on(datagram.header, datagram.payload, 0);
        continue;
      }
      for (const SwitchAction& action :
           one_.box.on(datagram.header, datagram.payload, {datagram.header.sender, 1}, 0))
        for (const Peer& peer : action.peers)
          under_way_.push_back(
              {static_cast<int>(peer.host), action.header, {action.payload.begin(), action.payload.end()}});
    }
    for (const auto& worker : workers_) EXPECT_TRUE(worker->done());
    for (const RowSums& own : sums_)
      EXPECT_LE(own.dealt().use_count(), 1) << "its worker keeps nothing of it";
  }
  AggregationWorker& worker(std::size_t w) { return *workers_[w]; }
  RowSums& sums(std::size_t w) { return sums_[w]; }
  SwitchCounters counters() { return one_.counters(); }

 private:
  struct Datagram {
    int to;  // a worker, or -1
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
  };
  struct Sink : DatagramSink {
    explicit Sink(RowsWorld& w) : world(w) {}
    void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
      world.under_way_.push_back({-1, header, {payload.begin(), payload.end()}});
    }
    RowsWorld& world;
  };
  OneSwitch one_;
  std::uint32_t operation_ = 0;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::unique_ptr<AggregationWorker>> workers_;
  std::vector<RowSums> sums_;
  std::deque<Datagram> under_way_;
};

Sum sum_as(AggregationFormat format, std::uint16_t block) {
  Sum sum;
  sum.format = format;
  sum.block = block;
  return sum;
}

TEST(RowsOfWorkersAndASwitch, AFewOfVeryManyTakeRoundsForThoseThatThereAre) {
  JobTerms terms = terms_of(2);
  terms.slots = 64;
  const std::int64_t last = static_cast<std::int64_t>(Rows::kMostKeys) - 1;
  for (const AggregationFormat format : {kF32, AggregationFormat::scaled, AggregationFormat::pairs}) {
    RowsWorld world(2, terms);
    world.sum({{0, 77, last}, {77, 1'000'000'000}}, sum_as(format, 8), Rows::kMostKeys, 10);
    for (std::size_t w = 0; w < 2; ++w) {
      const auto summed = world.sums(w).finish();
      ASSERT_TRUE(summed);
      EXPECT_THAT(summed->keys, ElementsAre(0, 77, 1'000'000'000, last));
      EXPECT_EQ(floats(*summed, 40)[10], 77 + 78);
      EXPECT_EQ(floats(*summed, 40)[29], 1e9F);
    }
    // One of each column that is used, to begin with, and one of each unit; of pairs the keys are far apart.
    EXPECT_LT(world.counters().rounds, format == AggregationFormat::pairs ? 256U + 40 : 4U + 4 + 8 + 1);
  }
}

TEST(RowsOfWorkersAndASwitch, ThatNobodyHasAreNone) {
  RowsWorld world(2, terms_of(2));
  world.sum({{}, {}}, sum_as(kF32, 8), 1000, 3);
  const auto summed = world.sums(1).finish();
  ASSERT_TRUE(summed);
  EXPECT_TRUE(summed->keys.empty());
  world.sum({{}, {}}, sum_as(kF32, 8), 0, 3);
  EXPECT_EQ(world.counters().contributions, 0U);
}

void expect_refused(const Rows& rows, const Sum& like, const char* text) {
  Sum sum = like;
  sum.rows = &rows;
  EXPECT_THAT(wrong_rows(sum), HasSubstr(text));
}

TEST(RowsOfASum, ThatCannotBeAreRefused) {
  RowSums sums;
  Rows rows;
  rows.limit = 10;
  rows.width = 4;
  rows.sums = &sums;
  Sum sum = sum_as(kF32, 8);
  sum.count = 40;
  sum.rows = &rows;
  EXPECT_EQ(wrong_rows(sum), "");
  Sum other = sum;
  other.count = 41;
  expect_refused(rows, other, "41 elements, of which 10 rows of 4 are no part");
  other = sum;
  other.format = AggregationFormat::block8;
  expect_refused(rows, other, "travel as they are");
  other = sum;
  other.tolerance.ppm = 1;
  expect_refused(rows, other, "all of them");
  Rows wrong = rows;
  wrong.sums = nullptr;
  expect_refused(wrong, sum, "are no part");
  wrong = rows;
  wrong.limit = Rows::kMostKeys + 1;
  expect_refused(wrong, sum, "expected up to 2147483648");
  wrong = rows;
  wrong.width = 0;
  expect_refused(wrong, sum, "of 1 and more");
  wrong.width = std::size_t{1} << 60;
  expect_refused(wrong, sum, "2^62");
}

}  // namespace
}  // namespace talweg::protocol
