// What a forked child may do with the groups of its parent: nothing, and harm nobody by trying.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <numeric>

#include "group/ranks.h"
#include "sanitized.h"
#include "switched.h"

namespace talweg {
namespace {

using testing::HasSubstr;

// What `body` says in a forked child, which then ends without a word to anybody.
std::string in_a_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = body();
    [[maybe_unused]] const auto n = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char chunk[512];
  for (ssize_t n = 0; (n = ::read(ends[0], chunk, sizeof chunk)) > 0;)
    said.append(chunk, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

constexpr const char* kNotSanitized =
    "ThreadSanitizer does not follow a fork of a process with several threads, and AddressSanitizer before "
    "that "
    "of GCC 14 leaves the child its allocator's locks as another thread held them";

class Forked : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << kNotSanitized;
  }
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Forked, testing::Values("1", "0"),
                         [](const auto& test) { return std::string(test.param[0] == '1' ? "On" : "Off"); });

TEST_P(Forked, AChildIsRefusedEveryCallAndTheGroupGoesOn) {
  const Variable memory("TALWEG_SHM", GetParam());
  run_ranks(2, [](Group& group) {
    float x = 1;
    group.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    if (group.rank() == 0) {
      const std::string said = in_a_child([&]() -> std::string {
        float y = 50;
        try {
          group.all_reduce(&y, &y, 1, DataType::f32, ReduceOp::sum);
        } catch (const Error& error) {
          return error.code() == ErrorCode::invalid_argument ? error.what() : "another code";
        }
        return "it went through";
      });
      EXPECT_THAT(said, HasSubstr("joined by process " + std::to_string(::getpid())));
    }
    group.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(x, 4);
  });
}

TEST_P(Forked, AChildMayLetGoOfAGroupAndTheOthersDoNotNotice) {
  const Variable memory("TALWEG_SHM", GetParam());
  const TemporaryFile store;
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      auto group = Group::join(options_for(r, 2, store.path()));
      float x = 1;
      if (r == 0) {
        const auto let_go = [&] {
          group.reset();
          return std::string("gone");
        };
        EXPECT_EQ(in_a_child(let_go), "gone");
      }
      group->all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
      EXPECT_EQ(x, 2);
    });
  for (auto& rank : ranks) rank.join();
}

// Of a group for which a switch sums at this moment: a thread of the parent has the lock of that most of the
// time. `part`: of one that has been split from it.
void let_go_while_a_switch_sums(bool part) {
  const live::Served served;
  const TemporaryFile store;
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      GroupOptions options = options_for(r, kRanks, store.path());
      through(at(served))(options);
      auto group = Group::join(options);
      if (part) {
        std::vector<int> all(kRanks);
        std::iota(all.rbegin(), all.rend(), 0);
        group = group->split(all);
      }
      sum_until_there(*group);
      std::vector<float> values(4 << 20, 1.F);
      int children = 0;
      for (int round = 0; round < 3; ++round) {
        const WorkPtr work = group->start_all_reduce(values.data(), values.data(), values.size(),
                                                     DataType::f32, ReduceOp::sum);
        for (; r == 0 && !work->test() && children < 3; ++children) {
          const auto let_go = [&] {
            ::alarm(20);  // ends it should it wait
            group.reset();
            return std::string("gone");
          };
          EXPECT_EQ(in_a_child(let_go), "gone");
        }
        work->wait();
      }
      if (r == 0) {
        EXPECT_GT(children, 0);
        EXPECT_GT(sums(*group), 1);
      }
    });
  for (auto& rank : ranks) rank.join();
}

TEST(Fork, AChildMayLetGoOfAGroupThatASwitchSumsFor) {
  if (kSanitized) GTEST_SKIP() << kNotSanitized;
  let_go_while_a_switch_sums(false);
}

TEST(Fork, AChildMayLetGoOfAGroupThatWasSplitFromSuchAOne) {
  if (kSanitized) GTEST_SKIP() << kNotSanitized;
  let_go_while_a_switch_sums(true);
}

TEST(Fork, AChildMayLetGoOfAStoreThatItsParentServes) {
  if (kSanitized) GTEST_SKIP() << kNotSanitized;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  auto store = serve_store(deadline, 28456).store;
  EXPECT_EQ(in_a_child([&] {
              store.reset();
              return std::string("gone");
            }),
            "gone");
  store->set("key", "value");
  EXPECT_EQ(store->get("key", deadline), "value");
}

}  // namespace
}  // namespace talweg
