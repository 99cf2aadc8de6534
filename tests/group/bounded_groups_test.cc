// Bounded sums of groups that were split, several at once, and beside urgent calls.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "group/bounded.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Two parts of five ranks; in neither a rank has the number that it has in the whole group.
std::vector<int> members_with(int rank) {
  return rank == 1 || rank == 3 ? std::vector<int>{3, 1} : std::vector<int>{4, 0, 2};
}

// Sums with losses: what they have given and what is left make up all. `first`: of values, so that no other
// group's come to the same.
std::uint64_t sum_with_losses(Group& group, BoundedSums& sums, std::size_t count, float first) {
  std::vector<float> residual(count), given(count), left(count);
  std::uint64_t lost = 0;
  constexpr int kSummed = 10;
  for (int call = 0; call < kSummed; ++call) {
    std::vector<float> values(count, first + static_cast<float>(group.rank()));
    lost += sums.all_reduce(
                    {.in = values.data(), .out = values.data(), .count = count, .residual = residual.data()})
                .lost_bytes;
    for (std::size_t i = 0; i < count; ++i) given[i] += values[i];
  }
  group.all_reduce(residual.data(), left.data(), count, DataType::f32, ReduceOp::sum);
  for (std::size_t i = 0; i < count; ++i) given[i] += left[i];
  const auto n = static_cast<float>(group.size());
  EXPECT_THAT(given, Each(kSummed * (n * first + n * (n - 1) / 2)));
  return lost;
}

TEST(BoundedGroups, OfOneGroupSumAtOnceEachItsOwn) {
  std::atomic<std::uint64_t> lost_of_two{0}, lost_of_three{0};
  run_ranks(5, [&](Group& whole) {
    const auto part = whole.split(members_with(whole.rank()));
    const auto sums = make_bounded(*part, {.p = 0.2, .packet_bytes = 200},
                                   lossy(0.1, 100 + static_cast<unsigned>(whole.rank())));
    // Not of the same size, nor as many bytes: what went to the other part would not even fit.
    const bool two = part->size() == 2;
    (two ? lost_of_two : lost_of_three) +=
        sum_with_losses(*part, *sums, two ? 9'000 : 12'001, two ? 64.F : 1.F);
  });
  EXPECT_GT(lost_of_two, 0U);
  EXPECT_GT(lost_of_three, 0U);
}

// A thread of each rank is in a call of the whole group's sums while another one is in a call of its part's.
TEST(BoundedGroups, ThatHaveRanksInCommonSumAtOnce) {
  run_ranks(5, [](Group& whole) {
    const auto part = whole.split(members_with(whole.rank()));
    const auto seed = static_cast<unsigned>(whole.rank());
    const BoundedLossOptions options{.p = 0.2, .packet_bytes = 200};
    const auto of_all = make_bounded(whole, options, lossy(0.1, 110 + seed));
    const auto of_part = make_bounded(*part, options, lossy(0.1, 120 + seed));
    std::string failed;
    std::thread other([&] { failed = error_of([&] { sum_with_losses(whole, *of_all, 10'000, 8.F); }); });
    sum_with_losses(*part, *of_part, 10'000, 512.F);
    other.join();
    EXPECT_EQ(failed, "nothing was thrown");
  });
}

TEST(BoundedGroups, NameRanksByTheirNumbersInThemAndLeaveOthersAlone) {
  run_ranks(5, [](Group& whole) {
    const auto part = whole.split(members_with(whole.rank()));
    const bool two = part->size() == 2;
    std::shared_ptr<BoundedSums> sums = BoundedSums::make(*part);
    std::vector<float> values(100);
    const auto call = [&](std::size_t count, std::chrono::milliseconds timeout) {
      std::fill(values.begin(), values.end(), 1.F);
      return error_of([&] {
        sums->all_reduce({.in = values.data(), .out = values.data(), .count = count, .timeout = timeout});
      });
    };
    constexpr std::chrono::seconds kLong{60};
    // Rank 2 of the three, which is rank 2 of all as well, wants another one; rank 0 is rank 4.
    const std::string differs = call(part->rank() == 2 ? 99 : 100, kLong);
    if (two)
      EXPECT_EQ(differs, "nothing was thrown");
    else
      EXPECT_THAT(differs, AllOf(HasSubstr("mismatch"), HasSubstr("rank 0 ("),
                                 HasSubstr("calls sum of 100 f32, rank 2 ("),
                                 HasSubstr("calls sum of 99 f32"), Not(HasSubstr("rank 4"))));
    EXPECT_EQ(call(100, kLong), "nothing was thrown");
    EXPECT_THAT(values, Each(static_cast<float>(part->size())));
    // Rank 0 of all, which is rank 1 of the three, does not come.
    if (whole.rank() != 0) {
      const std::string gone = call(100, two ? kLong : std::chrono::milliseconds(500));
      if (two)
        EXPECT_EQ(gone, "nothing was thrown");
      else
        EXPECT_THAT(gone,
                    AllOf(HasSubstr("bounded all_reduce #3 of 100 f32 on rank"), HasSubstr("rank 1 (")));
    }
    whole.barrier();
    if (!two) sums = BoundedSums::make(*part);  // which the parts' groups can
    EXPECT_EQ(call(100, kLong), "nothing was thrown");
    EXPECT_THAT(values, Each(static_cast<float>(part->size())));
  });
}

// While they are in a call whose data never arrive, or wait for a rank that does not come.
TEST(BoundedGroups, EndOnAllRanksWhenTheGroupTheyWereMadeOfIsAborted) {
  constexpr std::size_t kCount = 100'000;
  constexpr std::chrono::seconds kLong{60};
  for (const bool comes : {true, false})
    for (const bool push : {false, true}) {
      SCOPED_TRACE(testing::Message() << (comes ? "in a " : "before a ") << (push ? "push" : "all_reduce"));
      std::atomic<bool> loses{false};
      std::atomic<std::uint64_t> lost{0};
      run_ranks(3, [&](Group& whole) {
        const auto part = whole.split(std::vector<int>{2, 1, 0});
        BoundedSeams seams = lossy(0, 1);
        seams.send = [&, forward = seams.send](int fd, mmsghdr* messages, unsigned n) {
          if (!loses) return forward(fd, messages, n);
          lost += n;
          return static_cast<int>(n);
        };
        BoundedLossOptions options;
        if (push) options.servers = {0};
        const auto sums = make_bounded(*part, options, seams);
        const auto others = make_bounded(whole, {}, {});
        const auto alone = BoundedSums::make(*whole.split(std::vector<int>{whole.rank()}));
        std::vector<float> in(kCount), out(kCount);
        const auto call = [&](BoundedSums& of) {
          const BoundedCall what{.in = in.data(), .out = out.data(), .count = kCount, .timeout = kLong};
          return error_of([&] {
            if (&of == sums.get() && push)
              of.push(what);
            else
              of.all_reduce(what);
          });
        };
        whole.barrier();
        loses = true;
        const bool aborts = part->rank() == 1;
        std::thread aborting;
        if (aborts)
          aborting = std::thread([&] {
            while (comes && lost == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            part->abort("enough");
          });
        const auto says_so = AllOf(HasSubstr("aborted: bounded "), HasSubstr("#1 of 100000 f32 on rank"),
                                   HasSubstr(": rank 1 ("), HasSubstr("aborted the group: enough"));
        if (comes || !aborts) {
          EXPECT_THAT(call(*sums), says_so);
        }
        if (aborts) aborting.join();
        EXPECT_THAT(call(*sums), says_so) << "and every later one";
        whole.barrier();
        loses = false;
        EXPECT_EQ(call(*others), "nothing was thrown") << "they are of another group";
        EXPECT_EQ(call(*alone), "nothing was thrown");
        whole.barrier();
      });
    }
}

TEST(BoundedGroups, OfOneRankEndWhenTheGroupTheyWereMadeOfIsAborted) {
  run_ranks(1, [](Group& group) {
    const auto sums = BoundedSums::make(group);
    float x = 1;
    const auto call = [&] { sums->all_reduce({.in = &x, .out = &x, .count = 1}); };
    EXPECT_EQ(error_of(call), "nothing was thrown");
    group.abort("enough");
    EXPECT_THAT(error_of(call), AllOf(HasSubstr("aborted: "), HasSubstr("aborted the group: enough")));
  });
}

// While an urgent call sends 4 MiB, little leaves of four sums that are under way, and none of them ends: as
// their equal it would have a fifth of what leaves. Whether other threads let it leave at once is up to the
// system: of some tries one has to. `make`: of each rank, from its group what it does with the buffer; rank 0
// sends it to rank 1.
using Urgent = std::function<void(std::vector<std::byte>&)>;
void expect_overtaken(const std::function<Urgent(Group&)>& make) {
  constexpr std::size_t kBulk = 4 << 20, kUrgentBytes = 4 << 20;  // floats, bytes
  constexpr std::uint64_t kMuch = 2 * kUrgentBytes;
  constexpr int kSums = 4, kTries = 100;
  const Variable no_shm("TALWEG_SHM", "0");
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::atomic<bool> done{false};
  run_ranks(2, [&](Group& group) {
    std::vector<std::shared_ptr<BoundedSums>> sums;
    std::vector<std::vector<float>> values;
    BoundedLossOptions options;
    options.servers = {0};
    const Urgent call = make(group);
    for (int i = 0; i < kSums; ++i) {
      sums.push_back(BoundedSums::make(group, options));
      values.emplace_back(kBulk, group.rank() == 0 ? static_cast<float>(i) : -1.F);
    }
    std::vector<std::byte> urgent(kUrgentBytes);
    for (int t = 0; t < kTries && !done; ++t) {
      group.barrier();
      std::thread receiving;
      if (group.rank() == 1) receiving = std::thread([&] { call(urgent); });
      const std::uint64_t before = group.statistics().bytes_sent;
      std::atomic<int> ended{0}, failed{0};
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < sums.size(); ++i)
        threads.emplace_back([&, i] {
          float* const data = values[i].data();
          const std::string how = error_of([&] {
            sums[i]->pull({.in = group.rank() == 0 ? data : nullptr, .out = data, .count = kBulk});
          });
          EXPECT_EQ(how, "nothing was thrown");
          if (how != "nothing was thrown") ++failed;
          ++ended;
        });
      if (group.rank() == 0) {
        while (failed == 0 && group.statistics().bytes_sent < before + kUrgentBytes)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::uint64_t sent = group.statistics().bytes_sent;
        call(urgent);
        if (ended == 0) least = std::min(least, group.statistics().bytes_sent - sent - kUrgentBytes);
      } else {
        receiving.join();
      }
      for (std::thread& thread : threads) thread.join();
      if (group.rank() == 0) done = least < kMuch;
      group.barrier();
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(std::ranges::all_of(values[i], [i](float x) { return x == static_cast<float>(i); }));
  });
  EXPECT_LT(least, kMuch);
}

TEST(BoundedGroups, AreOvertakenByUrgentCalls) {
  expect_overtaken([](Group& group) -> Urgent {
    return [&group](std::vector<std::byte>& data) {
      if (group.rank() == 0)
        group.send(data.data(), data.size(), DataType::u8, 1, 0, {.priority = 7});
      else
        group.recv(data.data(), data.size(), DataType::u8, 0, 0, {.priority = 7});
    };
  });
}

// What ranks tell each other of the call does not wait for them either.
TEST(BoundedGroups, AreOvertakenByUrgentSums) {
  expect_overtaken([](Group& group) -> Urgent {
    BoundedLossOptions options;
    options.servers = {0};
    return [sums = BoundedSums::make(group, options), rank = group.rank()](std::vector<std::byte>& data) {
      const std::string how = error_of([&] {
        sums->pull({.in = rank == 0 ? data.data() : nullptr,
                    .out = data.data(),
                    .count = data.size(),
                    .type = DataType::u8,
                    .priority = 7});
      });
      EXPECT_EQ(how, "nothing was thrown");
    };
  });
}

TEST(BoundedGroups, RefuseAPriorityThatIsNoneOnAllRanks) {
  run_ranks(2, [](Group& group) {
    const auto sums = BoundedSums::make(group);
    std::vector<float> values(10, 1.F), part(5);
    const bool wrong = group.rank() == 1;
    for (const int priority : {-1, 8}) {
      const auto words = [&](const std::string& what) {
        return wrong ? HasSubstr(what + ": priority " + std::to_string(priority) + ": expected 0 to 7")
                     : HasSubstr("the call of rank 1");
      };
      const int given = wrong ? priority : 7;
      EXPECT_THAT(
          error_of([&] {
            sums->all_reduce({.in = values.data(), .out = values.data(), .count = 10, .priority = given});
          }),
          words("bounded all_reduce"));
      EXPECT_THAT(error_of([&] {
                    sums->push({.in = values.data(), .out = part.data(), .count = 10, .priority = given});
                  }),
                  words("bounded push"));
      EXPECT_THAT(error_of([&] {
                    sums->pull({.in = part.data(), .out = values.data(), .count = 10, .priority = given});
                  }),
                  words("bounded pull"));
    }
    // Ranks need not give the same.
    sums->all_reduce({.in = values.data(), .out = values.data(), .count = 10, .priority = 7 * group.rank()});
    EXPECT_THAT(values, Each(2.F));
  });
}

}  // namespace
}  // namespace talweg::group
