// Groups that end while they are used: on every rank four threads call, and any of them may abort a group or
// let go of it, with calls in flight. Each call ends: with the right sums, or with an error that names who
// has ended the group, and how.
//
// Seeds are drawn and printed; TALWEG_ENDING_SEED=n repeats what the ranks of seed n drew, if not how their
// threads met.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "base/random.h"
#include "ranks.h"
#include "sanitized.h"

namespace talweg {
namespace {

constexpr int kEndingRanks = 3;
constexpr int kSlots = 4;  // groups of each rank, and threads: each has one group to itself that it waits in

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

struct Leftovers {
  std::size_t descriptors = entries_of("/proc/self/fd");
  std::size_t threads = entries_of("/proc/self/task");
};

// What has been done to the groups of one slot, on all ranks: written down before it is done.
class Deeds {
 public:
  void add(int slot, ErrorCode code, int rank, const std::string& words) {
    const std::lock_guard guard(mutex_);
    deeds_[static_cast<std::size_t>(slot)].push_back({code, rank, words});
  }
  // Whether one of them explains what a call on `rank` ended with.
  bool explain(int slot, int rank, const Error& e) {
    const std::string text = e.what();
    const std::lock_guard guard(mutex_);
    return std::ranges::any_of(deeds_[static_cast<std::size_t>(slot)], [&](const Deed& d) {
      if (d.rank == rank && d.code == ErrorCode::peer_failed)  // it has let go itself
        return e.code() == ErrorCode::aborted && text.ends_with("the group was closed on this rank");
      const std::size_t at = text.find(fmt::format(": rank {} (", d.rank));
      return e.code() == d.code && at != std::string::npos && text.find(d.words, at) != std::string::npos;
    });
  }

 private:
  struct Deed {
    ErrorCode code;
    int rank;
    std::string words;
  };
  std::mutex mutex_;
  std::array<std::vector<Deed>, kSlots> deeds_;
};

struct Tally {
  std::atomic<long> sums{0}, aborted{0}, left{0};
};

// One call in flight. Calls of a slot are all alike, whichever thread makes them.
struct SlotCall {
  SlotCall(Group& group, int s, int priority) : slot(s) {
    const std::size_t n = s % 2 == 0 ? 20'000 + static_cast<std::size_t>(s) : 3;
    in.resize(n);
    out.assign(n, -1);
    for (std::size_t i = 0; i < n; ++i) in[i] = value(group.rank(), i);
    CallOptions options;
    options.priority = priority;
    work = group.start_all_reduce(in.data(), out.data(), n, DataType::i32, ReduceOp::sum, options);
  }
  std::int32_t value(int rank, std::size_t i) const {
    return static_cast<std::int32_t>(i % 97) + (1000 << 2 * rank) + 100'000 * slot;
  }
  bool right() const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::int32_t sum = 0;
      for (int r = 0; r < kEndingRanks; ++r) sum += value(r, i);
      if (out[i] != sum) return false;
    }
    return true;
  }

  const int slot;
  std::vector<std::int32_t> in, out;
  WorkPtr work;
};

class EndingRank {
 public:
  EndingRank(int rank, std::uint64_t seed, Deeds& deeds, Tally& tally)
      : rank_(rank), seed_(seed), deeds_(deeds), tally_(tally) {}

  // Nobody meddles with a group before all have split it.
  void run(const std::string& store, std::latch& all_made) {
    try {
      make_groups(store);
    } catch (...) {
      all_made.count_down();
      throw;
    }
    all_made.arrive_and_wait();
    std::vector<std::thread> threads;
    for (int t = 0; t < kSlots; ++t)
      threads.emplace_back([this, t] {
        try {
          play(t);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << rank_ << ", thread " << t << ": " << e.what();
        }
      });
    for (auto& thread : threads) thread.join();
    for (int s = 0; s < kSlots; ++s) let_go(s);
  }

 private:
  void make_groups(const std::string& store) {
    std::vector<int> all(kEndingRanks);
    std::iota(all.begin(), all.end(), 0);
    slots_[0] = Group::join(options_for(rank_, kEndingRanks, store));
    for (int s = 1; s < kSlots; ++s) slots_[static_cast<std::size_t>(s)] = slots_[0]->split(all);
  }

  std::shared_ptr<Group> take(int slot) {
    const std::lock_guard guard(mutex_);
    return slots_[static_cast<std::size_t>(slot)];
  }

  // The group ends here when the last thread that is in one of its calls has come back.
  void let_go(int slot) {
    const std::shared_ptr<Group> group = take(slot);
    if (!group) return;
    deeds_.add(slot, ErrorCode::peer_failed, rank_, "has left the group");
    const std::lock_guard guard(mutex_);
    slots_[static_cast<std::size_t>(slot)].reset();
  }

  void abort(int slot, int thread) {
    const std::shared_ptr<Group> group = take(slot);
    if (!group) return;
    const std::string why = fmt::format("thread {} of {} has enough of group {}", thread, rank_, slot);
    deeds_.add(slot, ErrorCode::aborted, rank_, "aborted the group: " + why);
    group->abort(why);
  }

  // Calls in the group of slot `t`, until that has ended; and meddles with the others', where it waits for
  // nothing before its own has ended: so every rank has a thread in every group, until it ends.
  void play(int t) {
    Random random(seed_, static_cast<std::uint64_t>(rank_ * kSlots + t));
    std::vector<SlotCall> kept;
    const bool ends = rank_ == static_cast<int>((seed_ + static_cast<std::uint64_t>(t)) % kEndingRanks);
    const std::uint64_t last = random.below(60);
    for (std::uint64_t step = 0;; ++step) {
      const int other = static_cast<int>(random.below(kSlots));
      if (random.below(3) == 0)
        if (const auto group = take(other))
          kept.emplace_back(*group, other, static_cast<int>(random.below(8)));
      if (random.below(200) == 0) abort(other, t);
      if (random.below(200) == 0) let_go(other);
      if (ends && step == last) {
        if ((seed_ + static_cast<std::uint64_t>(t) / 2) % 2 == 0) {
          abort(t, t);
        } else {
          let_go(t);
        }
      }
      auto group = take(t);
      if (!group) break;
      SlotCall call(*group, t, 0);
      if (!ended_well(call, std::move(group), random)) break;
    }
    for (SlotCall& call : kept) ended_well(call, nullptr, random);
  }

  // Waits for the call, in one of the ways that there are.
  bool ended_well(SlotCall& call, std::shared_ptr<Group> group, Random& random) {
    switch (random.below(4)) {
      case 0:
        while (!call.work->test()) std::this_thread::yield();
        break;
      case 1: {
        const auto done = std::make_shared<std::atomic<bool>>(false);
        // What the callback holds may be the last of the group.
        call.work->on_done([done, held = std::move(group)] { *done = true; });
        while (!*done) std::this_thread::sleep_for(std::chrono::microseconds(20));
        break;
      }
      case 2:
        try {
          while (!call.work->wait_for(std::chrono::milliseconds(1))) {
          }
        } catch (const Error&) {  // is said again
        }
        break;
      default:
        break;
    }
    try {
      call.work->wait();
    } catch (const Error& e) {
      EXPECT_TRUE(deeds_.explain(call.slot, rank_, e))
          << "rank " << rank_ << ", group " << call.slot << ": " << name(e.code()) << ": " << e.what();
      ++(e.code() == ErrorCode::aborted ? tally_.aborted : tally_.left);
      return false;
    }
    EXPECT_TRUE(call.right()) << "rank " << rank_ << ", group " << call.slot;
    ++tally_.sums;
    return true;
  }

  const int rank_;
  const std::uint64_t seed_;
  Deeds& deeds_;
  Tally& tally_;
  std::mutex mutex_;
  std::array<std::shared_ptr<Group>, kSlots> slots_;
};

void end_groups(std::uint64_t seed, Tally& tally) {
  const TemporaryFile store;
  Deeds deeds;
  std::latch all_made(kEndingRanks);
  std::vector<std::thread> ranks;
  for (int r = 0; r < kEndingRanks; ++r)
    ranks.emplace_back([&, r] {
      try {
        EndingRank(r, seed, deeds, tally).run(store.path(), all_made);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << ": " << e.what();
      }
    });
  for (auto& rank : ranks) rank.join();
}

class Ending : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Ending, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Ending, ByAnyThreadAtAnyTimeEndsEveryCallWithItsSumsOrWithWhoEndedTheGroup) {
  const Variable shm("TALWEG_SHM", GetParam());
  const char* const wanted = std::getenv("TALWEG_ENDING_SEED");
  const std::uint64_t first = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
  Tally tally;
  end_groups(first, tally);  // what a process keeps once it has had groups
  const Leftovers before;
  constexpr std::uint64_t kRounds = fewer(20);
  for (std::uint64_t seed = first; seed < first + kRounds; ++seed) {
    SCOPED_TRACE(fmt::format("TALWEG_ENDING_SEED={}", seed));
    end_groups(seed, tally);
    if (HasFailure()) break;
  }
  // A thread that let go of the last group from a callback ends a moment after its rank.
  for (int i = 0; i < 6000 && Leftovers().threads > before.threads; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Leftovers after;
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  std::printf("TALWEG_ENDING_SEED=%llu and on: %ld sums right, %ld calls aborted, %ld left by another rank\n",
              static_cast<unsigned long long>(first), tally.sums.load(), tally.aborted.load(),
              tally.left.load());
  EXPECT_GT(tally.sums, 0);
  EXPECT_GT(tally.aborted, 0);
  EXPECT_GT(tally.left, 0);
}

}  // namespace
}  // namespace talweg
