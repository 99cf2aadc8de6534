// Real groups: ranks are threads, frames go through shared memory or over loopback TCP.
#include "talweg/group.h"

#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <latch>
#include <numeric>
#include <type_traits>

#include "base/random.h"
#include "forest/planner.h"
#include "kernel/reduce.h"
#include "kernel/scalar.h"
#include "ranks.h"

namespace talweg {
namespace {

using testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

Ints filled(int rank, std::size_t n) {
  Ints v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = static_cast<std::int32_t>((i * 31 + static_cast<std::size_t>(rank) * 7) % 1009);
  return v;
}

Ints sum_of(int ranks, std::size_t n) {
  Ints total(n, 0);
  for (int r = 0; r < ranks; ++r) {
    const Ints one = filled(r, n);
    for (std::size_t i = 0; i < n; ++i) total[i] += one[i];
  }
  return total;
}

struct Setup {
  int size;
  std::string kind;
  int streams = 1;
  std::string transport = "tcp";
};

class Groups : public ::testing::TestWithParam<Setup> {
 protected:
  void run(const std::function<void(Group&)>& body) {
    const Variable shm("TALWEG_SHM", GetParam().kind == "Shm" ? "on" : "off");
    const Variable transport("TALWEG_TRANSPORT", GetParam().transport);
    const Variable streams("TALWEG_STREAMS", std::to_string(GetParam().streams));
    run_ranks(GetParam().size, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, Groups,
                         ::testing::Values(Setup{1, "Shm"}, Setup{2, "Shm"}, Setup{3, "Shm"}, Setup{5, "Shm"},
                                           Setup{2, "Tcp"}, Setup{4, "Tcp"}, Setup{3, "Tcp", 3},
                                           Setup{3, "Udp", 1, "udp"}, Setup{3, "Auto", 2, "auto"}),
                         [](const auto& test) {
                           return std::to_string(test.param.size) + test.param.kind +
                                  std::to_string(test.param.streams);
                         });

TEST_P(Groups, AllReduceSumsInAndOutOfPlaceAtEverySize) {
  run([](Group& g) {
    for (const std::size_t n : {0UL, 1UL, 2UL, 13UL, 1000UL, 4096UL, 70'000UL, 1'000'003UL}) {
      const Ints in = filled(g.rank(), n);
      Ints out(n, -1);
      g.all_reduce(in.data(), out.data(), n, DataType::i32, ReduceOp::sum);
      ASSERT_EQ(out, sum_of(g.size(), n)) << n;
      ASSERT_EQ(in, filled(g.rank(), n));
      Ints both = in;
      g.all_reduce(both.data(), both.data(), n, DataType::i32, ReduceOp::sum);
      ASSERT_EQ(both, out) << n << " in place";
    }
  });
}

TEST_P(Groups, EveryAlgorithmGivesTheSameSums) {
  for (const forest::Planner& planner : forest::planners()) {
    const std::string& algorithm = planner.name;
    if (!planner.serves(forest::even_request(Collective::all_reduce, 2, 0, 4, 4))) continue;
    const Variable choice("TALWEG_ALGO", "all_reduce:" + algorithm);
    run([&](Group& g) {
      for (const std::size_t n : {1UL, 777UL, 300'001UL}) {
        Ints data = filled(g.rank(), n);
        g.all_reduce(data.data(), data.data(), n, DataType::i32, ReduceOp::sum);
        ASSERT_EQ(data, sum_of(g.size(), n)) << algorithm << " " << n;
      }
    });
  }
}

TEST_P(Groups, OtherCollectivesMoveWhatTheyShould) {
  run([](Group& g) {
    const int size = g.size();
    const int me = g.rank();
    for (const std::size_t n : {0UL, 5UL, 50'000UL}) {
      for (int root = 0; root < size; ++root) {
        Ints data = filled(me, n);
        g.broadcast(data.data(), n, DataType::i32, root);
        ASSERT_EQ(data, filled(root, n));
        Ints out(me == root ? n : 0, -1);
        const Ints in = filled(me, n);
        g.reduce(in.data(), out.data(), n, DataType::i32, ReduceOp::sum, root);
        if (me == root) {
          ASSERT_EQ(out, sum_of(size, n));
        }
        ASSERT_EQ(in, filled(me, n));
      }
      std::vector<std::size_t> counts;  // uneven, one of them zero
      for (int r = 0; r < size; ++r) counts.push_back(static_cast<std::size_t>(r) * n / 4);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t before = std::accumulate(counts.begin(), counts.begin() + me, std::size_t{0});
      const std::size_t own = counts[static_cast<std::size_t>(me)];

      const Ints in = filled(me, total);
      Ints scattered(own, -1);
      g.reduce_scatter(in.data(), scattered.data(), counts, DataType::i32, ReduceOp::sum);
      const Ints sums = sum_of(size, total);
      ASSERT_EQ(scattered, Ints(sums.begin() + static_cast<long>(before),
                                sums.begin() + static_cast<long>(before + own)));

      Ints expected;
      for (int r = 0; r < size; ++r) {
        const Ints part = filled(r, counts[static_cast<std::size_t>(r)]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      Ints gathered(total, -1);
      const Ints part = filled(me, own);
      g.all_gather(part.data(), gathered.data(), counts, DataType::i32);
      ASSERT_EQ(gathered, expected);

      const int root = size - 1;
      Ints at_root(me == root ? total : 0, -1);
      std::vector<std::size_t> known(counts.size(), 0);
      known[static_cast<std::size_t>(me)] = own;
      g.gather(part.data(), at_root.data(), me == root ? counts : known, DataType::i32, root);
      if (me == root) {
        ASSERT_EQ(at_root, expected);
      }
      Ints back(own, -1);
      g.scatter(at_root.data(), back.data(), me == root ? counts : known, DataType::i32, root);
      ASSERT_EQ(back, part);

      std::vector<std::size_t> to;
      std::vector<std::size_t> from;
      Ints row;
      Ints column;
      const auto block = [&](int s, int d) { return static_cast<std::size_t>((s + 2 * d) % 3) * n / 2; };
      for (int r = 0; r < size; ++r) {
        to.push_back(block(me, r));
        from.push_back(block(r, me));
        row.insert(row.end(), to.back(), me * 100 + r);
        column.insert(column.end(), from.back(), r * 100 + me);
      }
      Ints received(column.size(), -1);
      g.all_to_all(row.data(), to, received.data(), from, DataType::i32);
      ASSERT_EQ(received, column);
      g.barrier();
    }
  });
}

TEST_P(Groups, MessagesPassInRings) {
  run([](Group& g) {
    if (g.size() == 1) return;
    const int next = (g.rank() + 1) % g.size();
    const int previous = (g.rank() + g.size() - 1) % g.size();
    for (const std::size_t n : {0UL, 3UL, 200'000UL}) {
      const Ints mine = filled(g.rank(), n);
      Ints theirs(n, -1);
      const auto sending = g.start_send(mine.data(), n, DataType::i32, next, 7);
      const auto receiving = g.start_recv(theirs.data(), n, DataType::i32, n == 3 ? kAnyRank : previous, 7);
      receiving->wait();
      sending->wait();
      ASSERT_EQ(theirs, filled(previous, n));
      ASSERT_EQ(receiving->source_rank(), previous);
    }
  });
}

TEST_P(Groups, ManyCollectivesInFlightKeepTheirOrderAndAnyThreadMayWait) {
  run([](Group& g) {
    constexpr std::size_t kCalls = 60;
    std::vector<Ints> data(kCalls);
    std::vector<WorkPtr> works;
    std::atomic<int> called{0};
    for (std::size_t c = 0; c < kCalls; ++c) {
      data[c] = filled(g.rank() + static_cast<int>(c), 10 + c * 300);
      works.push_back(
          g.start_all_reduce(data[c].data(), data[c].data(), data[c].size(), DataType::i32, ReduceOp::max));
      works.back()->on_done([&] { ++called; });
    }
    std::thread other([&] {
      for (std::size_t c = 0; c < kCalls; c += 2) works[c]->wait();
    });
    for (std::size_t c = 1; c < kCalls; c += 2) works[c]->wait();
    other.join();
    for (std::size_t c = 0; c < kCalls; ++c) {
      Ints expected = filled(static_cast<int>(c), data[c].size());
      for (int r = 1; r < g.size(); ++r) {
        const Ints one = filled(r + static_cast<int>(c), data[c].size());
        for (std::size_t i = 0; i < one.size(); ++i) expected[i] = std::max(expected[i], one[i]);
      }
      ASSERT_EQ(data[c], expected);
      EXPECT_EQ(works[c]->sequence(), c);
    }
    EXPECT_EQ(called.load(), static_cast<int>(kCalls));
  });
}

// A call in flight, and what must come of it.
struct Started {
  Started(Group& g, int number) {
    const std::size_t n = 10 + static_cast<std::size_t>(number % 7) * 400;
    const int root = number % g.size();
    in = filled(g.rank() + number, n);
    expected = filled(number % 3 == 1 ? root + number : number, n);
    if (number % 3 == 0) {
      for (int r = 1; r < g.size(); ++r) {
        const Ints one = filled(r + number, n);
        for (std::size_t i = 0; i < n; ++i) expected[i] = std::max(expected[i], one[i]);
      }
      out.resize(n);
      work = g.start_all_reduce(in.data(), out.data(), n, DataType::i32, ReduceOp::max);
    } else if (number % 3 == 1) {
      out = g.rank() == root ? in : Ints(n, -1);
      work = g.start_broadcast(out.data(), n, DataType::i32, root);
    } else {
      for (int r = 1; r < g.size(); ++r) {
        const Ints one = filled(r + number, n);
        expected.insert(expected.end(), one.begin(), one.end());
      }
      out.resize(expected.size());
      counts.assign(static_cast<std::size_t>(g.size()), n);
      work = g.start_all_gather(in.data(), out.data(), counts, DataType::i32);
    }
  }
  Ints in, out, expected;
  std::vector<std::size_t> counts;
  WorkPtr work;
};

// Each in a group of its own, as it likes, and in one that they share in an order that all ranks keep.
TEST_P(Groups, ThreadsMayStartCallsAtTheSameTime) {
  run([](Group& g) {
    constexpr int kThreads = 3, kCalls = 20;
    std::vector<int> everybody(static_cast<std::size_t>(g.size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    std::vector<std::shared_ptr<Group>> own;
    for (int t = 0; t < kThreads; ++t) own.push_back(g.split(everybody));
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::deque<Started> calls;
        for (int c = 0; c < kCalls; ++c) {
          calls.emplace_back(*own[static_cast<std::size_t>(t)], c + t);
          const int turn = c * kThreads + (c + t) % kThreads;
          while (next != turn) std::this_thread::yield();
          calls.emplace_back(g, turn);
          ++next;
        }
        for (Started& call : calls) {
          call.work->wait();
          EXPECT_EQ(call.out, call.expected);
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

// On the rank that started something before it, and on no other.
TEST_P(Groups, ABarrierEndsAfterWhatItsRankStartedBefore) {
  run([](Group& g) {
    if (g.size() == 1) return;
    Ints message{-1};
    const WorkPtr receiving = g.rank() == 0 ? g.start_recv(message.data(), 1, DataType::i32, 1, 7) : nullptr;
    const WorkPtr barrier = g.start_barrier();
    if (g.rank() != 0) barrier->wait();
    Ints one{1};
    g.all_reduce(one.data(), one.data(), 1, DataType::i32, ReduceOp::sum);  // the barrier's frames have come
    EXPECT_EQ(barrier->test(), g.rank() != 0) << "on rank " << g.rank();
    g.all_reduce(one.data(), one.data(), 1, DataType::i32, ReduceOp::sum);  // rank 0 has looked
    const Ints sent{42};
    if (g.rank() == 1) g.send(sent.data(), 1, DataType::i32, 0, 7);
    barrier->wait();
    EXPECT_TRUE(g.rank() != 0 || (receiving->test() && message[0] == 42));
  });
}

TEST_P(Groups, PrioritiesAreEachRanksOwnAndChangeNoResult) {
  run([](Group& g) {
    constexpr int kCalls = 24;
    const int next = (g.rank() + 1) % g.size(), previous = (g.rank() + g.size() - 1) % g.size();
    if (g.size() == 1) return;
    std::vector<Ints> sums, copies;
    Ints sent = filled(g.rank(), 50'000), got(sent.size());
    for (int c = 0; c < kCalls; ++c) {
      sums.push_back(filled(g.rank(), c % 2 == 0 ? 50'000 : 3));
      copies.push_back(g.rank() == c % g.size() ? Ints(20'000, c) : Ints(20'000));
    }
    std::vector<WorkPtr> works;
    for (int c = 0; c < kCalls; ++c) {
      CallOptions own;
      own.priority = (g.rank() * 3 + c * 5) % 8;
      Ints& sum = sums[static_cast<std::size_t>(c)];
      Ints& copy = copies[static_cast<std::size_t>(c)];
      works.push_back(
          g.start_all_reduce(sum.data(), sum.data(), sum.size(), DataType::i32, ReduceOp::sum, own));
      works.push_back(g.start_broadcast(copy.data(), copy.size(), DataType::i32, c % g.size(), own));
      if (c != kCalls / 2) continue;
      own.priority = g.rank() % 2 == 0 ? 7 : 0;
      works.push_back(g.start_recv(got.data(), got.size(), DataType::i32, previous, 1, own));
      own.priority = 7 - own.priority;
      works.push_back(g.start_send(sent.data(), sent.size(), DataType::i32, next, 1, own));
    }
    for (const WorkPtr& work : works) work->wait();
    for (const Ints& sum : sums) EXPECT_EQ(sum, sum_of(g.size(), sum.size()));
    for (const Ints& copy : copies) EXPECT_EQ(copy, Ints(20'000, static_cast<int>(&copy - copies.data())));
    EXPECT_EQ(got, filled(previous, got.size()));
  });
}

TEST_P(Groups, ThreadsThatCallTheSameShareAGroup) {
  run([](Group& g) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int c = 0; c < 50; ++c) {
          Ints data = filled(g.rank(), 1000);
          g.all_reduce(data.data(), data.data(), data.size(), DataType::i32, ReduceOp::sum);
          EXPECT_EQ(data, sum_of(g.size(), data.size()));
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Groups, ProgressIsMadeWhenNobodyWaits) {
  run([](Group& g) {
    Ints data = filled(g.rank(), 500'000);
    const auto work = g.start_all_reduce(data.data(), data.data(), data.size(), DataType::i32, ReduceOp::sum);
    std::atomic<bool> done{false};
    work->on_done([&] { done = true; });
    while (!done) std::this_thread::yield();
    EXPECT_EQ(data, sum_of(g.size(), data.size()));
  });
}

TEST(Group, ACallbackMayLetGoOfTheLastReference) {
  for (int round = 0; round < 5; ++round) {
    const TemporaryFile store;
    std::vector<std::thread> ranks;
    std::atomic<int> ended{0};
    for (int r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        auto group = Group::join(options_for(r, 2, store.path()));
        auto data = std::make_shared<Ints>(filled(r, 200'000));
        const auto work =
            group->start_all_reduce(data->data(), data->data(), data->size(), DataType::i32, ReduceOp::sum);
        work->on_done([group, data, &ended] { ++ended; });
        group.reset();
      });
    for (auto& t : ranks) t.join();
    while (ended < 2) std::this_thread::yield();
  }
}

TEST_P(Groups, SplitGroupsWorkSideBySide) {
  run([](Group& g) {
    std::vector<int> even;
    std::vector<int> odd;
    for (int r = g.size() - 1; r >= 0; --r) (r % 2 == 0 ? even : odd).push_back(r);
    const auto first = g.split(even);
    const auto second = odd.empty() ? nullptr : g.split(odd);
    EXPECT_EQ(first != nullptr, g.rank() % 2 == 0);
    const auto& mine = first ? first : second;
    ASSERT_NE(mine, nullptr);
    Ints one{g.rank()};
    mine->all_reduce(one.data(), one.data(), 1, DataType::i32, ReduceOp::sum);
    const auto& members = first ? even : odd;
    EXPECT_EQ(one[0], std::accumulate(members.begin(), members.end(), 0));
    EXPECT_EQ(members[static_cast<std::size_t>(mine->rank())], g.rank());
    g.barrier();
  });
}

TEST_P(Groups, SplitsOfListsThatDifferAreRefusedOnEveryRank) {
  run([](Group& g) {
    if (g.size() < 3) return;
    const std::vector<std::vector<int>> others = {{1}, {1, 0}, {1, 2}, {}};
    for (const auto& other : others) {
      const std::vector<int> both{0, 1};
      try {
        g.split(g.rank() == 1 ? other : both);
        ADD_FAILURE() << "rank " << g.rank() << " has not noticed";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::mismatch);
        EXPECT_THAT(e.what(), HasSubstr("rank 0 lists rank 1")) << e.what();
      }
    }
    // Lists without a rank in common are no contradiction.
    const auto part = g.split(std::vector<int>{g.rank()});
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->size(), 1);
    g.barrier();
  });
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

std::shared_ptr<Group> join_within(Group& all, int rank, int size, Store& store, const std::string& prefix) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.store = std::shared_ptr<Store>(&store, [](Store*) {});
  options.prefix = prefix;
  options.interface = "lo";
  options.timeout = std::chrono::seconds(30);
  options.within = std::shared_ptr<Group>(&all, [](Group*) {});
  return Group::join(options);
}

TEST_P(Groups, AGroupJoinedWithinAnotherSharesItsConnections) {
  const TemporaryFile path;
  run_ranks(4, [&](Group& all) {
    const auto store = file_store(path.path());
    // Looking takes a descriptor: one rank looks, while the others wait.
    const auto look = [&] {
      all.barrier();
      const std::ptrdiff_t seen = all.rank() == 0 ? open_descriptors() : 0;
      all.barrier();
      return seen;
    };
    const std::ptrdiff_t before = look();
    // Backwards, and without rank 1.
    const int rank = all.rank() == 0 ? 2 : all.rank() == 3 ? 0 : 1;
    std::vector<std::shared_ptr<Group>> groups;
    for (int i = 0; i < 10 && all.rank() != 1; ++i)
      groups.push_back(join_within(all, rank, 3, *store, std::to_string(i)));
    groups.push_back(join_within(all, 0, 1, *store, "alone"));
    EXPECT_EQ(look(), before);
    EXPECT_EQ(groups.back()->host_of(0), all.host_of(all.rank()));
    groups.pop_back();
    for (const auto& group : groups) {
      int sum = all.rank();
      group->all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
      EXPECT_EQ(sum, 5);
      EXPECT_EQ(group->host_of(0), all.host_of(3));
    }
    all.barrier();
  });
}

TEST_P(Groups, AGroupJoinedWithinABrokenOneHasConnectionsOfItsOwn) {
  const TemporaryFile path;
  run_ranks(2, [&](Group& all) {
    const auto store = file_store(path.path());
    all.barrier();
    if (all.rank() == 0) all.abort("to see what happens");
    const auto group = join_within(all, all.rank(), 2, *store, "again");
    int sum = 1;
    group->all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
    EXPECT_EQ(sum, 2);
  });
}

// There is a file for those who joined first, and those who are left are fewer.
TEST_P(Groups, APartOfABrokenGroupWithANetworkDoesWithoutIt) {
  const TemporaryFile path;
  const TemporaryFile network;
  std::ofstream(network.path()) << R"(nodes:
  - {name: h0, kind: worker}
  - {name: h1, kind: worker}
  - {name: h2, kind: worker}
links:
  - {between: [h0, h1], capacity: 1Gbit/s, latency: 30us}
  - {between: [h1, h2], capacity: 1Gbit/s, latency: 30us}
)";
  const Variable cluster("TALWEG_CLUSTER", network.path());
  std::latch joined(3);
  run_ranks(3, [&](Group& all) {
    EXPECT_THAT(all.describe(), HasSubstr("network: " + network.path()));
    const auto store = file_store(path.path());
    joined.arrive_and_wait();
    if (all.rank() == 0) all.abort("to see what happens");
    if (all.rank() == 2) return;
    const auto group = join_within(all, all.rank(), 2, *store, "left");
    EXPECT_THAT(group->describe(), HasSubstr("network: assumed (default)"));
    int sum = 1;
    group->all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
    EXPECT_EQ(sum, 2);
  });
}

// Numbers so small that any type holds what becomes of them, in whatever order. Integers are -1 to 1, which
// wrap where there is no sign: so results differ between types of one width.
std::vector<std::byte> small_numbers(DataType type, int rank, std::size_t count) {
  std::vector<std::byte> data(size_of(type) * count);
  kernel::visit_type(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto step = static_cast<int>(i) + rank;
      const int number = type == DataType::boolean ? step % 2 : 1 + step % 3;
      if constexpr (kernel::kIsComplex<T>) {
        using Real = decltype(T::real);
        kernel::store(data.data(), i, T{static_cast<Real>(number), static_cast<Real>(step % 2)});
      } else if constexpr (std::is_integral_v<T>) {
        kernel::store(data.data(), i, static_cast<T>(type == DataType::boolean ? number : number - 2));
      } else {
        kernel::store(data.data(), i, kernel::narrow<T>(static_cast<decltype(kernel::widen(T{}))>(number)));
      }
    }
  });
  return data;
}

TEST_P(Groups, EveryTypeAndReductionIsRight) {
  run([](Group& g) {
    constexpr std::size_t kCount = 1000;
    for (int t = 0; t < kDataTypes; ++t)
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        const auto data = small_numbers(type, g.rank(), kCount);
        std::vector<std::byte> out(data.size(), std::byte{0xff});
        const auto reduce = kernel::reduce_function(type, op);
        if (!reduce) {
          EXPECT_THROW(g.all_reduce(data.data(), out.data(), kCount, type, op), Error);
          continue;
        }
        auto expected = small_numbers(type, 0, kCount);
        for (int r = 1; r < g.size(); ++r)
          reduce(expected.data(), small_numbers(type, r, kCount).data(), expected.data(), kCount);
        if (op == ReduceOp::avg) kernel::divide(type, expected.data(), kCount, g.size());
        g.all_reduce(data.data(), out.data(), kCount, type, op);
        ASSERT_EQ(out, expected) << name(op) << " of " << name(type);
      }
  });
}

// Held to what is written here, not to a kernel as above.
TEST(Group, TheGreatestOfTheSameBytesGoesByTheirType) {
  run_ranks(2, [](Group& g) {
    const auto data = small_numbers(DataType::i32, g.rank(), 3);  // -1, 0, 1 and 0, 1, -1
    ASSERT_EQ(data, small_numbers(DataType::u32, g.rank(), 3));
    Ints with_sign(3);
    g.all_reduce(data.data(), with_sign.data(), 3, DataType::i32, ReduceOp::max);
    EXPECT_EQ(with_sign, (Ints{0, 1, 1}));
    std::vector<std::uint32_t> without(3);
    g.all_reduce(data.data(), without.data(), 3, DataType::u32, ReduceOp::max);
    EXPECT_EQ(without, (std::vector{0xffffffff, 1U, 0xffffffff}));
  });
}

TEST(Group, FloatSumsAreTheSameBitsOnEveryRankAndInEveryRun) {
  std::vector<float> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> results(4);
    run_ranks(4, [&](Group& g) {
      Random random(static_cast<std::uint64_t>(g.rank()));
      std::vector<float> data(300'000);
      for (float& x : data) x = static_cast<float>(random.uniform() - 0.5) * 1e3F;
      g.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
      std::vector<float> tiny(data.begin(), data.begin() + 10);
      g.all_reduce(tiny.data(), tiny.data(), tiny.size(), DataType::f32, ReduceOp::sum);
      data.insert(data.end(), tiny.begin(), tiny.end());
      results[static_cast<std::size_t>(g.rank())] = data;
    });
    for (const auto& r : results) ASSERT_EQ(r, results[0]);
    if (round == 0) first = results[0];
    ASSERT_EQ(results[0], first);
  }
}

TEST(Group, SaysHowItIsConnectedAndWhatItWouldChoose) {
  run_ranks(2, [](Group& g) {
    EXPECT_THAT(g.describe(), HasSubstr("shared memory: 2 of 2 ranks"));
    EXPECT_THAT(g.explain(Collective::all_reduce, 1 << 20, DataType::f32), HasSubstr("predicted"));
    EXPECT_THAT(g.host_of(1), HasSubstr("pid"));
    EXPECT_GT(g.statistics().shared_memory_bytes, 0U);
  });
}

}  // namespace
}  // namespace talweg
