// Sums of which a part is lost, by ranks as threads, with losses made where datagrams leave. The values are
// whole numbers that floats add without rounding: so that what has been given and what is left make up all.
#include "talweg/bounded_loss.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "group/bounded.h"
#include "lossy.h"
#include "ranks.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> whole_numbers(std::size_t count, int rank, int call) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(
        static_cast<int>((i * 37 + static_cast<std::size_t>(rank) * 11 + static_cast<std::size_t>(call) * 5) %
                         201) -
        100);
  return values;
}

bool same_on_all(Group& group, const std::vector<float>& values) {
  std::vector<float> least(values.size()), most(values.size());
  group.all_reduce(values.data(), least.data(), values.size(), DataType::f32, ReduceOp::min);
  group.all_reduce(values.data(), most.data(), values.size(), DataType::f32, ReduceOp::max);
  return std::memcmp(least.data(), most.data(), values.size() * sizeof(float)) == 0;
}

TEST(BoundedSums, WithNothingToLoseAreTheSumsOfTheGroup) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0, .packet_bytes = 512},
                                   lossy(0.1, 1 + static_cast<unsigned>(group.rank())));
    for (const std::size_t count : {1UL, 2UL, 1'000UL, 30'001UL})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        for (const bool in_place : {false, true}) {
          const std::vector<float> in = whole_numbers(count, group.rank(), 0);
          std::vector<float> expected(count), out = in_place ? in : std::vector<float>(count, -7.F);
          group.all_reduce(in.data(), expected.data(), count, DataType::f32, op);
          const LossReport report = sums->all_reduce(
              {.in = in_place ? out.data() : in.data(), .out = out.data(), .count = count, .reduction = op});
          EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * sizeof(float)), 0) << count;
          EXPECT_TRUE(report.exact);
          EXPECT_EQ(report.lost_bytes, 0U);
        }
  });
}

// Of ever other sizes not all are kept: one that has not been used for long begins with exact sums again.
TEST(BoundedSums, ForgetSizesThatAreNotUsed) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.01}, {});
    std::vector<float> values(1'000, 1.F);
    const auto exact = [&](std::size_t count) {
      return sums->all_reduce({.in = values.data(), .out = values.data(), .count = count}).exact;
    };
    for (const std::size_t count : {400UL, 401UL})
      for (int call = 0; exact(count); ++call) ASSERT_LT(call, 100);
    for (std::size_t other = 0; other < 300; ++other) {
      exact(other + 1);
      EXPECT_FALSE(exact(401)) << "in use";
    }
    EXPECT_TRUE(exact(400));
  });
}

TEST(BoundedSums, LoseNothingThatIsNotInAResidual) {
  constexpr std::size_t kCount = 40'000;
  constexpr int kCalls = 12;
  constexpr double kP = 0.05;
  const std::vector<std::size_t> layers{1, 9'999, 25'000, 0, 5'000};
  std::atomic<std::uint64_t> lost{0};
  run_ranks(4, [&](Group& group) {
    const auto sums = make_bounded(group, {.p = kP, .packet_bytes = 400},
                                   lossy(0.03, 10 + static_cast<unsigned>(group.rank())));
    std::vector<float> residual(kCount), given(kCount), wanted(kCount);
    for (int call = 0; call < kCalls; ++call) {
      const std::vector<float> in = whole_numbers(kCount, group.rank(), call);
      std::vector<float> out(kCount), exact(kCount);
      const LossReport report = sums->all_reduce({.in = in.data(),
                                                  .out = out.data(),
                                                  .count = kCount,
                                                  .residual = residual.data(),
                                                  .layers = layers});
      EXPECT_TRUE(same_on_all(group, out)) << "call " << call;
      group.all_reduce(in.data(), exact.data(), kCount, DataType::f32, ReduceOp::sum);
      for (std::size_t i = 0; i < kCount; ++i) {
        given[i] += out[i];
        wanted[i] += exact[i];
      }
      EXPECT_FALSE(report.exact);
      EXPECT_EQ(report.sent_bytes, kCount / 4 * 3 * sizeof(float));
      EXPECT_LE(static_cast<double>(report.lost_bytes), kP * static_cast<double>(report.sent_bytes));
      for (const std::uint64_t bytes : report.lost_of_sender)
        EXPECT_LE(static_cast<double>(bytes), kP * kCount / 4 * sizeof(float));
      EXPECT_EQ(report.lost_of_sender[static_cast<std::size_t>(group.rank())], 0U);
      std::uint64_t by_layer = 0;
      ASSERT_EQ(report.lost_of_layer.size(), layers.size());
      for (std::size_t l = 0; l < layers.size(); ++l) {
        EXPECT_LE(report.lost_of_layer[l], layers[l] * sizeof(float));
        by_layer += report.lost_of_layer[l];
      }
      EXPECT_EQ(by_layer, report.lost_bytes);
      lost += report.lost_bytes;
    }
    std::vector<float> left(kCount);
    group.all_reduce(residual.data(), left.data(), kCount, DataType::f32, ReduceOp::sum);
    for (std::size_t i = 0; i < kCount; ++i) given[i] += left[i];
    EXPECT_EQ(given, wanted);
  });
  EXPECT_GT(lost.load(), 0U);
}

// What is lost are packets with small values, and each says its layer's queue.
TEST(BoundedSums, LoseTheSmallestWhereSwitchesDropSelectively) {
  constexpr std::size_t kCount = 36'000, kPacket = 100;  // elements
  constexpr int kCalls = 8;
  std::array<std::atomic<std::uint64_t>, 256> seen{};
  std::atomic<std::uint64_t> lost{0}, important{0};
  run_ranks(3, [&](Group& group) {
    const auto sums = make_bounded(
        group,
        {.p = 0.3,
         .packet_bytes = 4 * kPacket,
         .classes = {.droppable_front = 0.5, .droppable_back = 0, .keep_important = true, .queues = 4}},
        selective(0.2, 40 + static_cast<unsigned>(group.rank()), seen));
    for (const double depth : {0.0, 1.0})
      for (int call = 0; call < kCalls; ++call) {
        // Every second packet is of ones, the others are of hundreds.
        std::vector<float> values(kCount), kept(kCount);
        for (std::size_t i = 0; i < kCount; ++i) values[i] = i / kPacket % 2 == 0 ? 1.F : 100.F;
        const LossReport report = sums->all_reduce({.in = values.data(),
                                                    .out = values.data(),
                                                    .count = kCount,
                                                    .residual = kept.data(),
                                                    .depth = depth});
        (depth > 0 ? important : lost) += report.lost_bytes;
        EXPECT_EQ(report.lost_important_bytes, 0U);
        for (std::size_t i = 0; i < kCount; ++i) {
          if (kept[i] != 0.F) {
            EXPECT_EQ(kept[i], 1.F) << i;
          }
          if (i / kPacket % 2 != 0) {
            EXPECT_EQ(values[i], 300.F) << i;
          }
        }
      }
  });
  EXPECT_GT(lost.load(), 0U);
  EXPECT_EQ(important.load(), 0U) << "of back layers nothing is droppable";
  const auto came = [&](std::uint8_t service) { return seen[wire::traffic_class(service, true)].load(); };
  EXPECT_GT(came(0), 0U) << "control";
  // Half of a shard's 120 packets are droppable; some may be spared.
  EXPECT_GT(came(1 | wire::kDroppable), 3U * 2 * kCalls * 30);
  EXPECT_LE(came(1 | wire::kDroppable), 3U * 2 * kCalls * 60);
  EXPECT_GE(came(1), 3U * 2 * kCalls * 60);
  EXPECT_EQ(came(4 | wire::kDroppable), 0U);
  EXPECT_GE(came(4), 3U * 2 * kCalls * 120);
}

TEST(BoundedSums, KeepWhatIsImportantWhateverTheNetworkLoses) {
  std::atomic<std::uint64_t> lost{0};
  run_ranks(3, [&](Group& group) {
    const auto sums =
        make_bounded(group,
                     {.p = 0.2,
                      .packet_bytes = 400,
                      .classes = {.droppable_front = 0.5, .droppable_back = 0.5, .keep_important = true}},
                     lossy(0.1, 50 + static_cast<unsigned>(group.rank())));
    for (int call = 0; call < 6; ++call) {
      std::vector<float> values(30'000);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = i / 100 % 2 == 0 ? 1.F : 100.F;
      const LossReport report =
          sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()});
      lost += report.lost_bytes;
      EXPECT_EQ(report.lost_important_bytes, 0U);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (i / 100 % 2 != 0) {
          EXPECT_EQ(values[i], 300.F) << i;
        }
    }
  });
  EXPECT_GT(lost.load(), 0U);
}

TEST(BoundedSums, AreMeansOfThoseThatHaveCome) {
  std::atomic<std::uint64_t> lost{0};
  run_ranks(3, [&](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.2, .policy = LossPolicy::rescale, .packet_bytes = 256},
                                   lossy(0.1, 20 + static_cast<unsigned>(group.rank())));
    for (int call = 0; call < 6; ++call) {
      std::vector<float> values(20'000, 42.F);
      lost += sums->all_reduce({.in = values.data(),
                                .out = values.data(),
                                .count = values.size(),
                                .reduction = ReduceOp::avg})
                  .lost_bytes;
      EXPECT_THAT(values, Each(42.F));
    }
  });
  EXPECT_GT(lost.load(), 0U);
}

// With all that the kernel has to make datagrams cheap, and the first calls exact.
TEST(BoundedSums, WorkAsTheyAreMade) {
  run_ranks(3, [](Group& group) {
    const auto sums = BoundedSums::make(group, {.p = 0.01});
    for (int call = 0; call < 25; ++call) {
      std::vector<double> values(100'003, group.rank() + 1.0);
      std::vector<double> residual(values.size());
      const LossReport report = sums->all_reduce({.in = values.data(),
                                                  .out = values.data(),
                                                  .count = values.size(),
                                                  .type = DataType::f64,
                                                  .residual = residual.data()});
      EXPECT_EQ(report.exact, call < 20);
      if (report.exact) {
        EXPECT_THAT(values, Each(6.0));
        EXPECT_THAT(residual, Each(0.0));
      }
    }
    std::vector<float> nothing;
    EXPECT_EQ(sums->all_reduce({.in = nullptr, .out = nullptr, .count = 0}).sent_bytes, 0U);
  });
}

TEST(BoundedSums, AreEncryptedWhereTheGroupIs) {
  const Variable shm("TALWEG_SHM", "off");
  const Variable encrypt("TALWEG_ENCRYPT", "on");
  std::atomic<int> readable{0}, seen{0};
  run_ranks(2, [&](Group& group) {
    BoundedSeams seams;
    seams.send = [&](int fd, mmsghdr* messages, unsigned n) {
      const std::string_view datagrams(static_cast<const char*>(messages->msg_hdr.msg_iov->iov_base),
                                       messages->msg_hdr.msg_iov->iov_len);
      const float in_a_row[] = {1.5F, 1.5F, 1.5F, 1.5F};
      const std::string_view plain(reinterpret_cast<const char*>(in_a_row), sizeof in_a_row);
      if (datagrams.find(plain) != std::string_view::npos) ++readable;
      ++seen;
      return ::sendmmsg(fd, messages, n, 0);
    };
    const auto sums = make_bounded(group, {.p = 0.01}, seams);
    std::vector<float> values(1'000, 1.5F);
    sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()});
    EXPECT_THAT(values, Each(3.F));
  });
  EXPECT_GT(seen, 0);
  EXPECT_EQ(readable, 0);
}

TEST(BoundedSums, OfOneRankAreItsOwn) {
  run_ranks(1, [](Group& group) {
    const auto sums = BoundedSums::make(group);
    std::vector<float> in{1, 2, 3}, out(3), residual{10, 0, 0};
    EXPECT_TRUE(
        sums->all_reduce({.in = in.data(), .out = out.data(), .count = 3, .residual = residual.data()})
            .exact);
    EXPECT_THAT(out, ::testing::ElementsAre(11, 2, 3));
    EXPECT_THAT(residual, Each(0.F));
  });
}

TEST(BoundedSums, AreRefusedWhereTheyHaveNoMeaning) {
  run_ranks(2, [](Group& group) {
    for (const double p : {-0.1, 0.6, std::numeric_limits<double>::quiet_NaN()})
      EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.p = p}); }),
                  AllOf(HasSubstr("invalid_argument"), HasSubstr("expected 0 to 0.5")));
    EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.packet_bytes = 8}); }),
                HasSubstr("expected 64 to"));
    const auto refused = [&](const PacketClasses& classes) {
      return error_of([&] { BoundedSums::make(group, {.classes = classes}); });
    };
    EXPECT_THAT(refused({.droppable_front = 1.5}), HasSubstr("1.5 of the packets that may be dropped first"));
    EXPECT_THAT(refused({.droppable_back = -1}), HasSubstr("expected 0 to 1"));
    EXPECT_THAT(refused({.queues = 8}), HasSubstr("8 queues for layers: expected 1 to 7"));
    EXPECT_THAT(refused({.keep_important = true}), HasSubstr("nothing could be missing"));
    const auto sums = BoundedSums::make(group);
    const auto means = BoundedSums::make(group, {.policy = LossPolicy::rescale});
    std::vector<float> a(8), b(8);
    const std::vector<std::size_t> layers{3, 4};
    const auto refusal = [](BoundedSums& by, const BoundedCall& call) {
      return error_of([&] { by.all_reduce(call); });
    };
    BoundedCall call{.in = a.data(), .out = a.data(), .count = 8};
    call.type = DataType::i32;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("of i32: expected f16, bf16, f32 or f64"));
    call.type = DataType::f32;
    call.reduction = ReduceOp::max;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("with max: expected sum or avg"));
    call.reduction = ReduceOp::sum;
    EXPECT_THAT(refusal(*means, call), HasSubstr("policy rescale: expected avg"));
    call.layers = layers;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("layers of 7 elements together, of 8"));
    const std::vector<std::size_t> around{std::numeric_limits<std::size_t>::max(), 9};
    call.layers = around;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("a layer of 18446744073709551615 elements, of 8"));
    call.layers = {};
    call.depth = 1.1;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("a depth of 1.1 in the model: expected 0 to 1"));
    call.depth = 0;
    call.residual = a.data();
    EXPECT_THAT(refusal(*sums, call), HasSubstr("the residual overlaps"));
    call.residual = b.data();
    call.reduction = ReduceOp::avg;
    EXPECT_THAT(refusal(*means, call), HasSubstr("would count twice"));
    call.residual = nullptr;
    call.out = a.data() + 1;
    call.count = 7;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("overlap in part"));
    call.out = nullptr;
    EXPECT_THAT(refusal(*sums, call), HasSubstr("the output is null"));
  });
}

// Whoever goes on after an error is at the same call as the others.
TEST(BoundedSums, ThatOneRankRefusesAreOverOnAll) {
  run_ranks(3, [](Group& group) {
    const auto sums = BoundedSums::make(group);
    std::vector<float> values(100, 1.F);
    const auto call = [&](float* out) {
      return error_of([&] { sums->all_reduce({.in = values.data(), .out = out, .count = values.size()}); });
    };
    const std::string refused = call(group.rank() == 1 ? nullptr : values.data());
    if (group.rank() == 1)
      EXPECT_THAT(refused, AllOf(HasSubstr("invalid_argument"), HasSubstr("the output is null")));
    else
      EXPECT_THAT(refused, AllOf(HasSubstr("mismatch"), HasSubstr("rank 1"), HasSubstr("was refused there")));
    EXPECT_THAT(values, Each(1.F));
    EXPECT_EQ(call(values.data()), "nothing was thrown");
    EXPECT_THAT(values, Each(3.F));
  });
}

// One of two threads waits for the other rank, which comes when the other thread was refused.
TEST(BoundedSums, TakeOneCallAtATime) {
  std::atomic<bool> refused{false};
  run_ranks(2, [&](Group& group) {
    const auto sums = BoundedSums::make(group);
    const auto call = [&] {
      std::vector<float> values(1'000, 1.F);
      const std::string error = error_of(
          [&] { sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}); });
      const bool done = error == "nothing was thrown";
      EXPECT_THAT(values, Each(done ? 2.F : 1.F));
      if (!done) {
        refused = true;
        refused.notify_all();
      }
      return error;
    };
    if (group.rank() == 1) {
      refused.wait(false);
      EXPECT_EQ(call(), "nothing was thrown");
      return;
    }
    std::vector<std::string> errors(2);
    std::thread other([&] { errors[1] = call(); });
    errors[0] = call();
    other.join();
    EXPECT_THAT(errors, ::testing::UnorderedElementsAre(
                            "nothing was thrown",
                            AllOf(HasSubstr("invalid_argument"), HasSubstr("another thread is in a call"))));
  });
}

TEST(BoundedSums, NeverLoseMoreThanWasAllowed) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 6e-7, .packet_bytes = 64}, lossy(0.05, 60));
    std::vector<float> values(100, 1.F);
    EXPECT_TRUE(sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}).exact);
  });
}

TEST(BoundedSums, AreRefusedWhereRanksDisagree) {
  run_ranks(3, [](Group& group) {
    EXPECT_THAT(
        error_of([&] { BoundedSums::make(group, {.p = group.rank() == 1 ? 0.2 : 0.1}); }),
        AllOf(HasSubstr("mismatch"), HasSubstr("rank 0 has p = 0.1,"), HasSubstr("rank 1 has p = 0.2,")));
    EXPECT_THAT(error_of([&] {
                  BoundedSums::make(group,
                                    {.policy = group.rank() == 2 ? LossPolicy::rescale : LossPolicy::zero});
                }),
                AllOf(HasSubstr("mismatch"), HasSubstr("rank 2 has p = 0.01, policy rescale")));
    const auto sums = BoundedSums::make(group);
    std::vector<float> values(100, 1.F), residual(100, 1.F);
    const auto call = [&](std::size_t count) {
      return error_of([&] {
        sums->all_reduce(
            {.in = values.data(), .out = values.data(), .count = count, .residual = residual.data()});
      });
    };
    EXPECT_THAT(call(group.rank() == 2 ? 99 : 100),
                AllOf(HasSubstr("mismatch"), HasSubstr("sum of 100 f32"), HasSubstr("sum of 99 f32")));
    EXPECT_THAT(values, Each(1.F));
    EXPECT_THAT(residual, Each(1.F));
    EXPECT_EQ(call(100), "nothing was thrown");
    EXPECT_THAT(values, Each(6.F));
  });
}

TEST(BoundedSums, NameWhoseDatagramsDoNotComeAndTheGroupGoesOn) {
  run_ranks(3, [](Group& group) {
    std::atomic<bool> blocked{false};
    const auto sums = make_bounded(group, {.p = 0.01}, once(blocked, lossy(group.rank() == 1 ? 1 : 0, 30)));
    blocked = true;
    std::vector<float> values(1'000, 1.F), residual(1'000);
    const auto call = [&] {
      return error_of([&] {
        sums->all_reduce({.in = values.data(),
                          .out = values.data(),
                          .count = values.size(),
                          .residual = residual.data(),
                          .timeout = std::chrono::seconds(2)});
      });
    };
    const std::string first = call();
    EXPECT_THAT(first, AllOf(HasSubstr("bounded all_reduce #1 of 1000 f32 on rank"), HasSubstr("rank 1")));
    EXPECT_THAT(residual, Each(1.F));
    EXPECT_EQ(call(), first);
    group.barrier();
  });
}

TEST(BoundedSums, SayThatUdpMayBeBlockedWhereNothingEverCame) {
  run_ranks(2, [](Group& group) {
    std::atomic<bool> blocked{false};
    const auto sums = make_bounded(group, {.p = 0.01}, once(blocked, lossy(1, 31)));
    blocked = true;
    std::vector<float> values(1'000, 1.F);
    EXPECT_THAT(error_of([&] {
                  sums->all_reduce({.in = values.data(),
                                    .out = values.data(),
                                    .count = values.size(),
                                    .timeout = std::chrono::seconds(1)});
                }),
                HasSubstr("nothing has come by the deadline: is UDP blocked between the two hosts?"));
  });
}

TEST(BoundedSums, SayOfACallThatOthersDoNotMakeWhichItIsAndHowLongItWaited) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.01}, lossy(0, 32));
    std::vector<float> values(1'000, 1.F);
    if (group.rank() == 0)
      EXPECT_THAT(error_of([&] {
                    sums->all_reduce({.in = values.data(),
                                      .out = values.data(),
                                      .count = values.size(),
                                      .timeout = std::chrono::milliseconds(70)});
                  }),
                  AllOf(HasSubstr("timeout"), HasSubstr("bounded all_reduce #1 of 1000 f32 on rank 0"),
                        HasSubstr("within 70 ms"), HasSubstr("rank 1 (")));
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
}

TEST(BoundedSums, EndWhenARankHasLeft) {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::latch told(3);  // who leaves before the others are told may be named to them
  run_ranks(4, [&](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.1}, lossy(0.02, 40));
    std::vector<float> values(50'000, 1.F);
    const auto call = [&] {
      return error_of(
          [&] { sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}); });
    };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call(), "nothing was thrown") << group.rank();
    if (group.rank() == 2) return;
    const std::string error = call();
    told.arrive_and_wait();
    const std::lock_guard guard(mutex);
    errors.push_back(error);
  });
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_THAT(errors, Each(HasSubstr("rank 2")));
}

// Others that wait for its datagrams hear of it before any deadline.
TEST(BoundedSums, EndWhenARankFailsOnTheWay) {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::atomic<bool> failing{false};
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(3, [&](Group& group) {
    BoundedSeams seams = lossy(0, 50);
    if (group.rank() == 1)
      seams.send = [&failing, forward = seams.send](int fd, mmsghdr* messages, unsigned n) -> int {
        if (failing) throw std::runtime_error("the card is gone");
        return forward(fd, messages, n);
      };
    const auto sums = make_bounded(group, {.p = 0.1}, seams);
    std::vector<float> values(50'000, 1.F);
    const auto call = [&] {
      return error_of(
          [&] { sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}); });
    };
    EXPECT_EQ(call(), "nothing was thrown");
    group.barrier();
    if (group.rank() == 1) failing = true;
    const std::string error = call();
    const std::lock_guard guard(mutex);
    errors.push_back(error);
  });
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1"), HasSubstr("the card is gone"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
}

// Rank 0 has all sums, and waits only to hear what rank 1 has lost: no message of the group would tell it.
TEST(BoundedSums, EndWhenARankFailsThatHasYetToSayWhatItHasLost) {
  std::string error;
  run_ranks(2, [&](Group& group) {
    BoundedSeams seams = lossy(0, 60);
    if (group.rank() == 1)
      seams.send = [dropped = 0](int fd, mmsghdr* messages, unsigned n) mutable -> int {
        for (unsigned i = 0; i < n; ++i) {
          std::size_t bytes = 0;
          for (std::size_t k = 0; k < messages[i].msg_hdr.msg_iovlen; ++k)
            bytes += messages[i].msg_hdr.msg_iov[k].iov_len;
          if (bytes >= 400)
            ::sendmmsg(fd, messages + i, 1, 0);
          else if (++dropped == 4)
            throw std::runtime_error("the card is gone");
        }
        return static_cast<int>(n);
      };
    const auto sums = make_bounded(group, {.p = 0.1, .packet_bytes = 512}, seams);
    std::vector<float> values(10'000, 1.F);
    const std::string said = error_of(
        [&] { sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}); });
    if (group.rank() == 0) error = said;
  });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1"), HasSubstr("the card is gone")));
}

// A size that is forgotten begins anew: its first calls lose nothing.
TEST(BoundedSums, KeepTheDeadlinesOfTheSizesThatWereUsedLast) {
  run_ranks(2, [](Group& group) {
    const auto sums = BoundedSums::make(group, {.p = 0.1});
    const auto exact = [&](std::size_t count, int times = 1) {
      LossReport report;
      for (int i = 0; i < times; ++i) {
        const std::vector<float> in(count, 1.F);
        std::vector<float> out(count);
        report = sums->all_reduce({.in = in.data(), .out = out.data(), .count = count});
      }
      return report.exact;
    };
    EXPECT_FALSE(exact(1000, 25));
    for (std::size_t other = 1; other <= 255; ++other) exact(other);
    EXPECT_FALSE(exact(1000)) << "255 others are kept beside it";
    for (std::size_t other = 1; other <= 256; ++other) exact(300 + other);
    EXPECT_TRUE(exact(1000)) << "256 others have been used since";
    EXPECT_FALSE(exact(1000, 25));
  });
}

}  // namespace
}  // namespace talweg::group
