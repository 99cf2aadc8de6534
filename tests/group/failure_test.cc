// What goes wrong, and what every rank is told.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include "own_address.h"
#include "ranks.h"

namespace talweg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Function>
std::string error_of(ErrorCode code, Function&& function) {
  try {
    function();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line";
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

class Failures : public ::testing::TestWithParam<const char*> {
 protected:
  Variable shm_{"TALWEG_SHM", GetParam()};
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Failures, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Failures, AnotherSizeOnOneRankIsToldToAllAndLeavesBuffersAlone) {
  run_ranks(3, [](Group& g) {
    for (const std::size_t n : {10UL, 500'000UL}) {
      const std::size_t own = g.rank() == 1 ? n + 1 : n;
      std::vector<float> in(own, 1.0F);
      std::vector<float> out(own, -7.0F);
      const std::string text = error_of(ErrorCode::mismatch, [&] {
        g.all_reduce(in.data(), out.data(), own, DataType::f32, ReduceOp::sum);
      });
      EXPECT_THAT(text, AllOf(HasSubstr(std::to_string(n) + " elements"),
                              HasSubstr(std::to_string(n + 1) + " elements")));
      EXPECT_THAT(out, ::testing::Each(-7.0F));
      float one = 1;
      g.all_reduce(&one, &one, 1, DataType::f32, ReduceOp::sum);
      EXPECT_EQ(one, 3.0F) << "the group stays usable";
    }
  });
}

TEST_P(Failures, AnotherTypeReductionRootOrOrderIsAMismatch) {
  run_ranks(2, [](Group& g) {
    float data[4] = {};
    const bool first = g.rank() == 0;
    error_of(ErrorCode::mismatch,
             [&] { g.all_reduce(data, data, 4, first ? DataType::f32 : DataType::i32, ReduceOp::sum); });
    error_of(ErrorCode::mismatch,
             [&] { g.all_reduce(data, data, 4, DataType::f32, first ? ReduceOp::sum : ReduceOp::max); });
    error_of(ErrorCode::mismatch, [&] { g.broadcast(data, 4, DataType::f32, first ? 0 : 1); });
    error_of(ErrorCode::mismatch, [&] {
      if (first) {
        g.barrier();
      } else {
        g.broadcast(data, 4, DataType::f32, 0);
      }
    });
    const std::vector<std::size_t> a{1, 2};
    const std::vector<std::size_t> b{2, 1};
    std::vector<float> out(3);
    error_of(ErrorCode::mismatch, [&] { g.all_gather(data, out.data(), first ? a : b, DataType::f32); });
    error_of(ErrorCode::mismatch, [&] {
      g.all_to_all(data, first ? a : b, out.data(), first ? std::vector<std::size_t>{1, 1} : b,
                   DataType::f32);
    });
    g.barrier();
  });
}

TEST_P(Failures, ARankThatNeverCallsIsNamedAtTheDeadline) {
  run_ranks(3, [](Group& g) {
    if (g.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    } else {
      float x = 1;
      CallOptions options;
      options.timeout = std::chrono::milliseconds(200);
      const std::string text = error_of(
          ErrorCode::timeout, [&] { g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, options); });
      EXPECT_THAT(text, AllOf(HasSubstr("rank 2"), HasSubstr("#0"), HasSubstr("all_reduce")));
      EXPECT_EQ(x, 1.0F);
    }
  });
}

// What the others have sent is all there when it comes: enough to be done, had they not given up.
TEST_P(Failures, ARankThatComesWhenTheOthersHaveGivenUpHearsThatAndFromWhom) {
  for (const int size : {2, 3}) {
    std::latch given_up(size - 1);
    run_ranks(size, [&](Group& g) {
      g.barrier();
      const bool late = g.rank() == size - 1;
      const std::string late_rank = "rank " + std::to_string(size - 1) + " (";
      CallOptions options;
      if (late) {
        given_up.wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for what was sent to arrive
      } else {
        options.timeout = std::chrono::milliseconds(100);
      }
      const std::string text = error_of(ErrorCode::timeout, [&] { g.barrier(options); });
      EXPECT_THAT(text, AllOf(HasSubstr("barrier() #1 on rank "), HasSubstr("phase "), HasSubstr(late_rank),
                              ::testing::Not(HasSubstr("on " + late_rank))));
      if (!late) given_up.count_down();
      g.barrier();  // the group stays usable
    });
  }
}

TEST_P(Failures, ARankThatLeavesFailsTheOthers) {
  run_ranks(2, [](Group& g) {
    if (g.rank() == 1) return;
    float x = 1;
    const std::string text =
        error_of(ErrorCode::peer_failed, [&] { g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum); });
    EXPECT_THAT(text, HasSubstr("rank 1"));
  });
}

TEST_P(Failures, WhatWaitsForARankThatLeavesKeepsNobodyWaiting) {
  // More than the kernel and a shared pool take: most of it still waits when rank 2 leaves.
  std::vector<std::vector<float>> of_ranks(3, std::vector<float>(16U << 20, 1.0F));
  run_ranks(
      3,
      [&](Group& group) {
        std::vector<float>& data = of_ranks[static_cast<std::size_t>(group.rank())];
        const auto work = group.start_broadcast(data.data(), data.size(), DataType::f32, 0);
        CallOptions first;
        first.priority = 7;
        group.start_barrier(first)->wait();  // all have started the broadcast
        if (group.rank() == 2) return;
        try {
          work->wait();
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::peer_failed) << e.what();
        }
      },
      [](GroupOptions& options) { options.algorithm = "broadcast:star"; });
}

TEST_P(Failures, ARankThatLeavesAPartOfAGroupFailsTheOthersOfThatPart) {
  const Variable streams("TALWEG_STREAMS", "3");
  run_ranks(3, [](Group& all) {
    const std::vector<int> members{0, 1, 2};
    auto part = all.split(members);
    const auto large = std::vector<float>(300'000, 1.0F);
    std::vector<float> sum(large.size());
    part->all_reduce(large.data(), sum.data(), sum.size(), DataType::f32, ReduceOp::sum);
    EXPECT_THAT(sum, ::testing::Each(3.0F));
    if (all.rank() == 1) {
      part.reset();
    } else {
      const std::string text = error_of(ErrorCode::peer_failed, [&] { part->barrier(); });
      EXPECT_THAT(text, HasSubstr("rank 1"));
    }
    all.barrier();
  });
}

TEST_P(Failures, AbortWakesEveryWaiter) {
  run_ranks(3, [](Group& g) {
    if (g.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      g.abort("changed my mind");
    }
    float x = 1;
    const std::string text =
        error_of(ErrorCode::aborted, [&] { g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum); });
    EXPECT_THAT(text, HasSubstr("rank 0"));
  });
}

TEST_P(Failures, AKilledProcessIsNamedByAllOthers) {
  const TemporaryFile store;
  std::vector<pid_t> children;
  for (int r = 0; r < 3; ++r) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int status = 1;
      try {
        const auto group = Group::join(options_for(r, 3, store.path()));
        std::vector<float> x(300'000, 1.0F);
        for (int i = 0; i < 1'000'000; ++i) {
          if (r == 1 && i == 20) ::kill(::getpid(), SIGKILL);
          group->all_reduce(x.data(), x.data(), x.size(), DataType::f32, ReduceOp::max);
        }
      } catch (const Error& e) {
        const bool named = std::string(e.what()).find("rank 1") != std::string::npos;
        status = e.code() == ErrorCode::peer_failed && named ? 0 : 2;
        if (status != 0) std::fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  for (std::size_t r = 0; r < 3; ++r) {
    int status = 0;
    ::waitpid(children[r], &status, 0);
    if (r == 1) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << r << " status " << status;
    }
  }
}

// A rank stops, and is killed later, with as many of a rank's shared blocks lent to it as it gets. A part of
// the group without it needs them.
TEST(SharedBlocks, LentToAStoppedOrKilledRankDoNotHoldUpAPartOfTheGroupWithoutIt) {
  const Variable shm("TALWEG_SHM", "on");
  const TemporaryFile store;
  std::array<int, 2> stopped{};
  std::array<int, 2> lent{};
  ASSERT_EQ(::pipe(stopped.data()), 0);
  ASSERT_EQ(::pipe(lent.data()), 0);
  std::vector<pid_t> children;
  for (int r = 0; r < 3; ++r) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int status = 0;
      try {
        GroupOptions options = options_for(r, 3, store.path());
        options.algorithm = "broadcast:star";
        const auto group = Group::join(options);
        const std::vector<int> survivors{0, 1};
        const auto part = group->split(survivors);
        // Of each broadcast a few chunks go to a rank that does not read: of all together more than there are
        // blocks.
        std::vector<std::vector<float>> data(12, std::vector<float>(1U << 20, 1.0F));
        std::vector<WorkPtr> works;
        const auto start = [&] {
          for (auto& d : data) works.push_back(group->start_broadcast(d.data(), d.size(), DataType::f32, 0));
        };
        if (r != 0) start();
        const auto sum_in_part = [&] {
          for (int i = 0; i < 20; ++i) {
            std::vector<float> x(1U << 20, 1.0F);
            part->all_reduce(x.data(), x.data(), x.size(), DataType::f32, ReduceOp::sum);
            if (x.front() != 2 || x.back() != 2) status = 3;
          }
        };
        if (r == 2) ::raise(SIGSTOP);  // its threads, too
        char byte = 0;
        if (r == 0 && ::read(stopped[0], &byte, 1) == 1) {
          start();
          works[0]->wait_for(std::chrono::milliseconds(300));  // sends what can be sent
        }
        sum_in_part();
        if (r == 0 && ::write(lent[1], "x", 1) != 1) status = 1;
        for (const auto& work : works) try {
            work->wait();
            if (r == 0) status = 2;  // rank 1 may have got all that it needs
          } catch (const Error& e) {
            if (e.code() != ErrorCode::peer_failed || std::strstr(e.what(), "rank 2 (") == nullptr)
              status = 5;
          }
        sum_in_part();
      } catch (const Error& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
        status = 4;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(children[2], &status, WUNTRACED), children[2]);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(::write(stopped[1], "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(lent[0], &byte, 1), 1);
  ::kill(children[2], SIGKILL);
  ::waitpid(children[2], &status, 0);
  for (const int fd : {stopped[0], stopped[1], lent[0], lent[1]}) ::close(fd);
  for (const int r : {0, 1}) {
    ::waitpid(children[static_cast<std::size_t>(r)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << r;
  }
}

// Healthy ranks wait for it, and their data for what it does not read: still it alone is named. All know what
// it has started before it stops, and it reads nothing of what they start after that.
TEST_P(Failures, AStoppedRankIsTheOnlyOneThatIsSaidNotToAnswer) {
  constexpr int kRanks = 4;
  const TemporaryFile store;
  std::array<int, 2> stopped{};
  ASSERT_EQ(::pipe(stopped.data()), 0);
  std::vector<pid_t> children;
  for (int r = 0; r < kRanks; ++r) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::close(stopped[1]);
      int status = 0;
      try {
        const auto group = Group::join(options_for(r, kRanks, store.path()));
        const std::vector<std::size_t> counts(kRanks, 300'000);
        const std::vector<float> in(kRanks * counts[0], 1.0F);
        std::vector<std::vector<float>> outs(3, in);
        std::vector<WorkPtr> works;
        CallOptions options;
        options.timeout = std::chrono::seconds(6);
        const auto start = [&] {
          for (auto& out : outs)
            works.push_back(
                group->start_all_to_all(in.data(), counts, out.data(), counts, DataType::f32, options));
        };
        float told = 1;
        if (r == 2) {
          start();
          for (const int other : {0, 1, 3}) group->send(&told, 1, DataType::f32, other);
          ::raise(SIGSTOP);  // its threads, too
        } else {
          group->recv(&told, 1, DataType::f32, 2);
          char byte = 0;
          if (::read(stopped[0], &byte, 1) != 0) status = 3;  // the end of the pipe
          start();
        }
        std::string text;
        for (const auto& work : works) try {
            work->wait();
          } catch (const Error& e) {
            if (text.empty()) text = e.what();
          }
        if (text.find("timed out: rank 2 (") == std::string::npos ||
            text.find("does not answer") == std::string::npos) {
          std::fprintf(stderr, "rank %d: \"%s\"\n", r, text.c_str());
          status = 2;
        }
      } catch (const Error& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
        status = 4;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(children[2], &status, WUNTRACED), children[2]);
  EXPECT_TRUE(WIFSTOPPED(status));
  for (const int fd : stopped) ::close(fd);
  for (const int r : {0, 1, 3}) {
    ::waitpid(children[static_cast<std::size_t>(r)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << r;
  }
  ::kill(children[2], SIGKILL);
  ::waitpid(children[2], &status, 0);
}

// Its goodbye and its end are both there before anybody looks.
TEST_P(Failures, ARankThatSaidGoodbyeAndEndedHasNotFailed) {
  const TemporaryFile store;
  std::array<int, 2> ended{};
  ASSERT_EQ(::pipe(ended.data()), 0);
  std::vector<pid_t> children;
  for (int r = 0; r < 3; ++r) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::close(ended[1]);
      int status = 0;
      try {
        const auto group = Group::join(options_for(r, 3, store.path()));
        float x = 1;
        if (r < 2) {
          char byte = 0;
          if (::read(ended[0], &byte, 1) != 0) status = 3;  // the end of the pipe
          for (int i = 0; i < 10; ++i) {
            if (r == 0) group->send(&x, 1, DataType::f32, 1);
            if (r == 1) group->recv(&x, 1, DataType::f32, 0);
          }
        }
      } catch (const Error& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
        status = 2;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  ::close(ended[0]);
  for (const int r : {2, 0, 1}) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(r)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << r;
    if (r == 2) ::close(ended[1]);
  }
}

TEST(Joining, NamesTheRanksThatNeverCame) {
  const TemporaryFile store;
  GroupOptions options = options_for(0, 3, store.path());
  options.timeout = std::chrono::milliseconds(200);
  const std::string text = error_of(ErrorCode::timeout, [&] { Group::join(options); });
  EXPECT_THAT(text, HasSubstr("ranks 1, 2 never came"));
}

TEST(Joining, SaysWhichInterfacesThereAre) {
  const TemporaryFile store;
  GroupOptions options = options_for(0, 2, store.path());
  options.interface = "=nosuch0";
  const std::string text = error_of(ErrorCode::invalid_argument, [&] { Group::join(options); });
  EXPECT_THAT(text, AllOf(HasSubstr("nosuch0"), HasSubstr("lo (127.0.0.1)")));
}

TEST(Joining, AnAlgorithmMustExistAndServeWhatItIsNamedFor) {
  GroupOptions options;
  options.algorithm = "bogus";
  EXPECT_THAT(error_of(ErrorCode::invalid_argument, [&] { Group::join(options); }),
              HasSubstr("sharded_star"));
  options.algorithm = "broadcast:ring";
  EXPECT_THAT(error_of(ErrorCode::unsupported, [&] { Group::join(options); }),
              HasSubstr("ring does not serve broadcast"));
  options.algorithm = "sing:ring";
  EXPECT_THAT(error_of(ErrorCode::invalid_argument, [&] { Group::join(options); }), HasSubstr("sing"));
}

TEST(Joining, ADirectoryIsNoFileStore) {
  const std::string text = error_of(ErrorCode::invalid_argument, [] { file_store("/tmp"); });
  EXPECT_THAT(text, AllOf(HasSubstr("/tmp"), HasSubstr("a directory")));
}

TEST(Joining, APortInUseIsNamed) {
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const auto [first, port] = serve_store(soon, 23456);
  ASSERT_TRUE(first);
  const std::string text =
      error_of(ErrorCode::system, [&, p = port] { tcp_store("127.0.0.1", p, true, soon); });
  EXPECT_THAT(text, AllOf(HasSubstr(std::to_string(port)), HasSubstr("Address already in use")));
}

TEST(Joining, AStoreThatNobodyServesTimesOut) {
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  const std::string text = error_of(ErrorCode::timeout, [&] { tcp_store("127.0.0.1", 1, false, soon); });
  EXPECT_THAT(text, HasSubstr("127.0.0.1:1"));
}

TEST(Joining, AnotherVersionIsRefusedByName) {
  const TemporaryFile path;
  const auto store = file_store(path.path());
  store->set("rank1", "talweg 99 127.0.0.1 1 - - - 1 1 0");
  const std::string text = error_of(ErrorCode::version, [&] { Group::join(options_for(0, 2, path.path())); });
  EXPECT_THAT(text, AllOf(HasSubstr("99"), HasSubstr("rank 1")));
}

TEST(Joining, EveryRankReadsWhyItWasRefusedBeforeRankZeroGoesWithItsStore) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string texts[4];
  ServedStore served = serve_store(until, 25456);
  ASSERT_TRUE(served.store);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r) {
    GroupOptions options;
    options.rank = r;
    options.size = 4;
    options.store = r == 0 ? std::move(served.store) : tcp_store("127.0.0.1", served.port, false, until);
    options.timeout = std::chrono::seconds(30);
    options.interface = "lo";
    options.algorithm = r == 2 ? "ring" : "";
    // Nobody but rank 0's call holds the store that it serves.
    ranks.emplace_back([options = std::move(options), &text = texts[r]]() mutable {
      text = error_of(ErrorCode::invalid_argument, [&] { Group::join(options); });
      options.store.reset();
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const std::string& text : texts)
    EXPECT_EQ(text, "rank 2 and rank 0 have different values of TALWEG_ALGO: set it alike on all");
}

TEST(Joining, StrangersOnThePortDoNotDisturb) {
  // The store's port is hit by garbage while a group forms over it.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const ServedStore server = serve_store(until, 24456);
  const int port = server.port;
  ASSERT_TRUE(server.store);
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    const std::string command = "head -c 20000 /dev/urandom > /dev/tcp/127.0.0.1/" + std::to_string(port);
    while (!stop)
      [[maybe_unused]] const int rc = std::system(("bash -c '" + command + "' 2>/dev/null").c_str());
  });
  while (server.store->refused_connections() == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(server.store->refused_connections(), 0U) << "no stranger has come";
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      GroupOptions options;
      options.rank = r;
      options.size = 3;
      options.store = tcp_store("127.0.0.1", port, false, until);
      options.interface = "lo";
      const auto group = Group::join(options);
      group->barrier();
    });
  for (auto& t : ranks) t.join();
  stop = true;
  stranger.join();
}

TEST(Arguments, AreCheckedBeforeAnythingIsSent) {
  run_ranks(2, [](Group& g) {
    float x = 1;
    const std::vector<std::size_t> one{1};
    error_of(ErrorCode::invalid_argument, [&] { g.broadcast(&x, 1, DataType::f32, 2); });
    error_of(ErrorCode::invalid_argument,
             [&] { g.all_reduce(nullptr, &x, 1, DataType::f32, ReduceOp::sum); });
    error_of(ErrorCode::invalid_argument, [&] { g.all_gather(&x, &x, one, DataType::f32); });
    error_of(ErrorCode::invalid_argument, [&] { g.send(&x, 1, DataType::f32, g.rank()); });
    // A call reads while it writes: what is shared is the whole vector or the rank's own part.
    std::vector<float> v(8, 1);
    const std::vector<std::size_t> parts{3, 3};
    const auto overlaps = [&](auto&& call) {
      EXPECT_THAT(error_of(ErrorCode::invalid_argument, call), HasSubstr("input and output"));
    };
    const std::size_t own = 3 * static_cast<std::size_t>(g.rank());
    constexpr DataType f32 = DataType::f32;
    overlaps([&] { g.all_reduce(&v[0], &v[1], 7, f32, ReduceOp::sum); });
    overlaps([&] { g.all_gather(&v[own + 1], &v[0], parts, f32); });
    overlaps([&] { g.reduce_scatter(&v[0], &v[own + 1], parts, f32, ReduceOp::sum); });
    overlaps([&] { g.all_to_all(&v[0], parts, &v[5], parts, f32); });
    if (g.rank() == 0) {
      overlaps([&] { g.reduce(&v[0], &v[1], 7, f32, ReduceOp::sum, 0); });
      overlaps([&] { g.gather(&v[1], &v[0], parts, f32, 0); });
      overlaps([&] { g.scatter(&v[0], &v[1], parts, f32, 0); });
    }
    EXPECT_THAT(v, testing::Each(1.0F));
    for (const int priority : {-1, 8}) {
      CallOptions options;
      options.priority = priority;
      const std::string expected = fmt::format("priority {}: expected 0 .. 7", priority);
      EXPECT_EQ(error_of(ErrorCode::invalid_argument, [&] { g.barrier(options); }), expected);
      EXPECT_EQ(error_of(ErrorCode::invalid_argument,
                         [&] { g.send(&x, 1, DataType::f32, 1 - g.rank(), 0, options); }),
                expected);
    }
    error_of(ErrorCode::unsupported, [&] { g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::bit_and); });
    g.barrier();
  });
}

// Whoever is quick finds the store of the group before, which is just closing.
TEST(Joining, GroupsFormAtOneAddressOneAfterTheOther) {
  constexpr int kGroups = 30;
  std::atomic<int> formed{0};
  const auto rank = [&](int r) {
    GroupOptions options;
    options.rank = r;
    options.size = 3;
    options.rendezvous = fmt::format("tcp://{}:27411", own_address());
    options.timeout = std::chrono::seconds(60);
    for (int g = 0; g < kGroups; ++g) {
      try {
        Group::join(options)->barrier();
        ++formed;
      } catch (const Error& e) {
        ADD_FAILURE() << "rank " << r << ", group " << g << ": " << e.what();
        return;
      }
    }
  };
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(rank, r);
  for (std::thread& thread : ranks) thread.join();
  EXPECT_EQ(formed, 3 * kGroups);
}

}  // namespace
}  // namespace talweg
