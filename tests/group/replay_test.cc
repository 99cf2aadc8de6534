// Somebody stands between two ranks who has no key and says again what he has heard: the handshake of a
// connection for data to the rank that it was for, and, once ranks are connected, their records: twice, in
// another order, not all. Nobody gets in, and no sum is wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <latch>
#include <span>
#include <sstream>
#include <thread>

#include "live/system.h"
#include "ranks.h"
#include "wire/cipher.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace talweg {
namespace {

using testing::HasSubstr;
using Heard = std::vector<std::byte>;

constexpr std::int64_t kReplaySecond = 1'000'000'000;
constexpr std::size_t kOpening = wire::kHelloBytes + wire::kProofBytes;  // what the one that connects says
// An all-reduce of one element: a header and a payload, a record each.
constexpr std::size_t kHeaderRecord = sizeof(wire::Header) + wire::kTagBytes;
constexpr std::size_t kPayloadRecord = sizeof(float) + wire::kTagBytes;
constexpr std::size_t kFrameOfOne = kHeaderRecord + kPayloadRecord;

// Passes one connection on, and hears what the side says that made it.
class Eavesdropper {
 public:
  // What becomes of it on its way: `all` that was said up to now; returns how much of that is dealt with.
  using Meddle = std::function<std::size_t(std::span<const std::byte> all, std::size_t passed, Heard& to)>;

  explicit Eavesdropper(Meddle meddle)
      : meddle_(std::move(meddle)), listener_(live::listen_tcp({"127.0.0.1", 0})) {}
  ~Eavesdropper() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Eavesdropper(const Eavesdropper&) = delete;
  Eavesdropper& operator=(const Eavesdropper&) = delete;

  int port() const { return live::local_endpoint(listener_).port; }
  void stand_before(int port) {
    thread_ = std::thread([this, port] {
      try {
        pass_on(port);
      } catch (const Error&) {  // one of them has gone
      }
    });
  }
  Heard heard() const {
    const std::lock_guard guard(mutex_);
    return heard_;
  }

 private:
  void pass_on(int port) {
    while (!live::wait_ready(listener_, false, live::now_ns() + kReplaySecond / 100))
      if (over_) return;
    live::FileDescriptor client(::accept(listener_.get(), nullptr, nullptr));
    live::FileDescriptor server = live::connect_tcp({"127.0.0.1", port}, live::now_ns() + 20 * kReplaySecond);
    std::size_t passed = 0;
    while (!over_) {
      if (take(server, 1, [&](std::span<const std::byte> bytes) { say(client, bytes); })) return;
      const bool ended = take(client, 1, [&](std::span<const std::byte> bytes) {
        Heard to;
        {
          const std::lock_guard guard(mutex_);
          heard_.insert(heard_.end(), bytes.begin(), bytes.end());
          passed = meddle_(heard_, passed, to);
        }
        say(server, to);
      });
      if (ended || passed == kCut) return;
    }
  }

  static void say(const live::FileDescriptor& to, std::span<const std::byte> bytes) {
    live::send_all(to, bytes.data(), bytes.size(), live::now_ns() + 20 * kReplaySecond);
  }
  // True at the end.
  template <class Use>
  static bool take(const live::FileDescriptor& from, int ms, Use&& use) {
    std::array<std::byte, 4096> bytes;
    if (!live::wait_ready(from, false, live::now_ns() + ms * live::kMillisecondNs)) return false;
    const ssize_t n = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n <= 0) return true;
    use(std::span(bytes).first(static_cast<std::size_t>(n)));
    return false;
  }

  const Meddle meddle_;
  const live::FileDescriptor listener_;
  mutable std::mutex mutex_;
  Heard heard_;
  std::atomic<bool> over_{false};
  std::thread thread_;

 public:
  static constexpr std::size_t kCut = ~std::size_t{0};  // the connection ends here
};

std::size_t faithful(std::span<const std::byte> all, std::size_t passed, Heard& to) {
  to.assign(all.begin() + static_cast<std::ptrdiff_t>(passed), all.end());
  return all.size();
}

// A store where one who reads rank 0's verdict is told of it; what it returns is read in its place.
class ToldStore : public Store {
 public:
  using Tell = std::function<std::string(const std::string& verdict)>;
  ToldStore(std::shared_ptr<Store> inner, Tell tell) : inner_(std::move(inner)), tell_(std::move(tell)) {}
  void set(const std::string& key, const std::string& value) override { inner_->set(key, value); }
  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    const std::string value = inner_->get(key, deadline);
    return value.starts_with("agreed\n") ? tell_(value) : value;
  }
  bool confidential() const override { return inner_->confidential(); }

 private:
  const std::shared_ptr<Store> inner_;
  const Tell tell_;
};

// Where rank 0 listens, in what it says to all; `other` in place of that.
int reroute(std::string& verdict, int other) {
  const std::size_t card = verdict.find("\ntalweg ");
  std::istringstream words(verdict.substr(card));
  std::string word, host;
  int port = 0;
  words >> word >> word >> host >> port;
  const std::string there = fmt::format(" {} {} ", host, port);
  verdict.replace(verdict.find(there, card), there.size(), fmt::format(" 127.0.0.1 {} ", other));
  return port;
}

// Fails unless what is said is answered by a refusal and the end.
void say_to(int port, const Heard& opening, std::int64_t until) {
  const live::FileDescriptor socket = live::connect_tcp({"127.0.0.1", port}, until);
  live::send_all(socket, opening.data(), opening.size(), until);
  std::array<std::byte, wire::kChallengeBytes + wire::kAnswerBytes> answer;
  live::receive_all(socket, answer.data(), answer.size(), until);
  EXPECT_EQ(answer[wire::kChallengeBytes], static_cast<std::byte>(wire::Refusal::wrong_key))
      << "it was let in";
  std::byte more{};
  EXPECT_TRUE(live::wait_ready(socket, false, live::now_ns() + 10 * kReplaySecond) &&
              ::recv(socket.get(), &more, 1, MSG_DONTWAIT) <= 0);
}

TEST(Replay, OfWhatOpenedAConnectionForDataIsRefusedWhereItWasSaid) {
  const Variable shm("TALWEG_SHM", "off");
  constexpr int kTimes = 3;
  Eavesdropper between(faithful);
  std::atomic<int> port{0};
  std::latch said_again(1);
  std::jthread stranger([&] {
    try {
      const std::int64_t until = live::now_ns() + 60 * kReplaySecond;
      while (between.heard().size() < kOpening && live::now_ns() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Heard opening = between.heard();
      EXPECT_GE(opening.size(), kOpening);
      opening.resize(kOpening);
      for (int i = 0; i < kTimes; ++i) say_to(port, opening, until);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    said_again.count_down();
  });
  const auto tell = [&](int rank, std::string verdict) {
    if (rank == 1) {
      port = reroute(verdict, between.port());
      between.stand_before(port);
    }
    // Until its connections are there, rank 0 listens.
    if (rank == 2) said_again.wait();
    return verdict;
  };
  run_ranks(
      3,
      [&](Group& group) {
        for (int call = 0; call < 20; ++call) {
          float sum = static_cast<float>(100 * call + group.rank());
          group.all_reduce(&sum, &sum, 1, DataType::f32, ReduceOp::sum);
          EXPECT_EQ(sum, static_cast<float>(300 * call + 3));
        }
        if (group.rank() != 0) return;
        EXPECT_THAT(group.describe(), HasSubstr(fmt::format("{} strange connections dropped", kTimes)));
      },
      [&](GroupOptions& o) {
        o.store = std::make_shared<ToldStore>(
            o.store, [&, r = o.rank](const std::string& verdict) { return tell(r, verdict); });
      });
}

enum class Trick { repeated, of_before, left_out, exchanged, payloads_exchanged, cut };

class ReplayedRecords : public ::testing::TestWithParam<Trick> {};

// What he plays with: so many frames of one element each.
constexpr std::size_t kPlayedWith = 6;

std::vector<Heard> tricked(Trick trick, std::span<const std::byte> frames) {
  std::vector<Heard> parts;
  for (std::size_t i = 0; i < kPlayedWith; ++i) {
    const auto frame = frames.subspan(i * kFrameOfOne, kFrameOfOne);
    parts.emplace_back(frame.begin(), frame.end());
  }
  const auto payload = static_cast<std::ptrdiff_t>(kHeaderRecord);
  switch (trick) {
    case Trick::repeated:
      parts.insert(parts.begin() + 2, parts[1]);
      break;
    case Trick::of_before:
      parts[4] = parts[0];
      break;
    case Trick::left_out:
      parts.erase(parts.begin() + 1);
      break;
    case Trick::exchanged:
      parts[1].swap(parts[2]);
      break;
    case Trick::payloads_exchanged:
      std::swap_ranges(parts[1].begin() + payload, parts[1].end(), parts[2].begin() + payload);
      break;
    case Trick::cut:
      parts.resize(2);
      parts.back().resize(kHeaderRecord / 2);
      break;
  }
  return parts;
}

TEST_P(ReplayedRecords, EndInAnErrorThatNamesTheConnectionAndNeverInAWrongSum) {
  const Variable shm("TALWEG_SHM", "off");
  const Variable encrypt("TALWEG_ENCRYPT", "on");
  constexpr std::size_t kCalls = 40;
  std::atomic<std::size_t> begin{~std::size_t{0}};  // where what he plays with begins, once that is known
  std::atomic<bool> done{false};
  Eavesdropper between([&](std::span<const std::byte> all, std::size_t passed, Heard& to) {
    const std::size_t from = begin;
    if (passed > from || all.size() <= from) return faithful(all, passed, to);
    if (all.size() < from + kPlayedWith * kFrameOfOne) return faithful(all.first(from), passed, to);
    faithful(all.first(from), passed, to);
    for (const Heard& part : tricked(GetParam(), all.subspan(from)))
      to.insert(to.end(), part.begin(), part.end());
    done = true;
    if (GetParam() == Trick::cut) return Eavesdropper::kCut;
    const auto rest = all.subspan(from + kPlayedWith * kFrameOfOne);
    to.insert(to.end(), rest.begin(), rest.end());
    return all.size();
  });
  std::array<int, 2> failed{};
  run_ranks(
      2,
      [&](Group& group) {
        const int rank = group.rank();
        const auto expect_named = [&](const Error& e) {
          ++failed[static_cast<std::size_t>(rank)];
          const bool noticed = rank == 0 && GetParam() != Trick::cut;
          EXPECT_TRUE(e.code() == ErrorCode::corrupted || (!noticed && e.code() == ErrorCode::peer_failed))
              << e.what();
          EXPECT_THAT(e.what(), HasSubstr(fmt::format("rank {} (", 1 - rank)));
        };
        // What comes before, and the plan, is not all of one size.
        float warm = 1;
        group.all_reduce(&warm, &warm, 1, DataType::f32, ReduceOp::sum);
        if (rank == 1) begin = kOpening + group.statistics().bytes_sent;
        // In flight at once, so that one who stands between has some of them to play with.
        std::vector<float> sums(kCalls);
        std::vector<WorkPtr> works;
        for (std::size_t c = 0; c < kCalls; ++c) {
          sums[c] = static_cast<float>(10 * c + static_cast<std::size_t>(rank));
          works.push_back(group.start_all_reduce(&sums[c], &sums[c], 1, DataType::f32, ReduceOp::sum));
        }
        for (std::size_t c = 0; c < kCalls; ++c) try {
            works[c]->wait();
            EXPECT_EQ(sums[c], static_cast<float>(20 * c + 1)) << "call " << c;
          } catch (const Error& e) {
            expect_named(e);
          }
        try {
          group.barrier();
        } catch (const Error& e) {
          expect_named(e);
        }
      },
      [&](GroupOptions& o) {
        if (o.rank != 1) return;
        o.store = std::make_shared<ToldStore>(o.store, [&](std::string verdict) {
          between.stand_before(reroute(verdict, between.port()));
          return verdict;
        });
      });
  EXPECT_TRUE(done);
  EXPECT_GT(failed[0], 0);
  EXPECT_GT(failed[1], 0);
}

const char* name_of(Trick trick) {
  switch (trick) {
    case Trick::repeated:
      return "Repeated";
    case Trick::of_before:
      return "OfBefore";
    case Trick::left_out:
      return "LeftOut";
    case Trick::exchanged:
      return "Exchanged";
    case Trick::payloads_exchanged:
      return "PayloadsExchanged";
    case Trick::cut:
      return "Cut";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Tricks, ReplayedRecords,
                         ::testing::Values(Trick::repeated, Trick::of_before, Trick::left_out,
                                           Trick::exchanged, Trick::payloads_exchanged, Trick::cut),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace talweg
