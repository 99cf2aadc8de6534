// A switch that is lost is warned of once, whichever rank finds it first.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "group/switch_stream.h"
#include "switched.h"

namespace talweg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Rank 0 of a job, and what it warns of.
class Warned {
 public:
  explicit Warned(const live::Served& served, int ranks = 1)
      : wish_(always_by(served)),
        stream_(wish_, wish_.at[0], {0, ranks, "lost"}, warnings_.logger(), [this] { changed(); }) {
    live::wait_until([&] { return stream_.cost().has_value(); });
  }

  // A sum of ones, in place. Its turn comes once go() says so.
  std::shared_ptr<protocol::QueuedSum> line_up() { return stream_.line_up().first; }
  void go(protocol::QueuedSum& sum) {
    auto* const bytes = reinterpret_cast<std::byte*>(ones_.data());
    stream_.go(sum, {bytes, bytes, ones_.size() * sizeof(float)});
  }
  // As when another rank has said that it goes by trees.
  void abandon(protocol::QueuedSum& sum) { stream_.abandon(sum); }
  // The stream's thread, once a sum has ended, does no more until this is unlocked.
  std::unique_lock<std::mutex> hold_after_a_sum() {
    std::unique_lock held(pause_);
    to_be_held_ = true;
    return held;
  }
  bool is_held() const { return held_; }

  // Once its life has ended.
  std::vector<std::string> lines() {
    live::wait_until([&] { return lost_ > 0; });
    stream_.stop();
    return warnings_.lines();
  }

 private:
  void changed() {
    if (!to_be_held_.exchange(false)) {
      ++lost_;
      return;
    }
    held_ = true;
    const std::lock_guard wait(pause_);
  }

  std::vector<float> ones_ = std::vector<float>(5000, 1.0F);
  const Warnings warnings_;
  std::mutex pause_;
  std::atomic<bool> to_be_held_{false}, held_{false};
  std::atomic<int> lost_{0};
  const group::SwitchWish wish_;
  group::SwitchStream stream_;
};

TEST(SwitchedLost, OneThatAnotherRankFindsGoneFirstIsWarnedOf) {
  std::optional<live::Served> served(std::in_place);
  Warned warned(*served);
  const auto sum = warned.line_up();
  {
    const auto held = warned.hold_after_a_sum();
    warned.go(*sum);
    live::wait_until([&] { return warned.is_held(); });
    const auto next = warned.line_up();
    ASSERT_NE(next, nullptr);
    served.reset();
    warned.abandon(*next);
  }
  EXPECT_THAT(warned.lines(), ElementsAre(AllOf(HasSubstr("no sums by the switch at "),
                                                HasSubstr("the switch has been stopped"))));
}

TEST(SwitchedLost, OneThatAnotherRankFindsSilentFirstIsWarnedOf) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served served(options);
  Warned warned(served);
  silent = true;
  const auto sum = warned.line_up();
  warned.go(*sum);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  warned.abandon(*sum);
  EXPECT_THAT(warned.lines(), ElementsAre(AllOf(HasSubstr("no sums by the switch at "),
                                                HasSubstr("nothing has come of a sum for "))));
}

TEST(SwitchedLost, OneThatIsAllRightIsNot) {
  const live::Served served;
  Warned warned(served);
  const auto sum = warned.line_up();
  warned.abandon(*sum);
  EXPECT_THAT(warned.lines(), IsEmpty());
}

TEST(SwitchedLost, OneByWhichAnotherRankHasGivenASumUpIsNot) {
  const live::Served served;
  const group::SwitchWish wish = always_by(served);
  group::SwitchStream other(wish, wish.at[0], {1, 2, "lost"}, Logger(0, LogLevel::none), [] {});
  Warned warned(served, 2);
  live::wait_until([&] { return other.cost().has_value(); });
  other.abandon(*other.line_up().first);
  EXPECT_THAT(warned.lines(), IsEmpty());
}

}  // namespace
}  // namespace talweg
