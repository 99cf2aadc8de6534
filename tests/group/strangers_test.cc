// A running job among strangers: four ranks sum and check without a pause, others join and leave beside them,
// and at everything that listens are thrown connections that say nothing, noise, or something close to the
// truth. TALWEG_STRANGERS says how many (default 3000).
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "group/ranks.h"
#include "live/system.h"
#include "talweg/error.h"
#include "wire/handshake.h"
#include "wire/store_message.h"

namespace talweg {
namespace {

constexpr const char* kKey = "the key of this job";
constexpr int kVictims = 4;

std::chrono::steady_clock::time_point in_s(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

std::pair<std::shared_ptr<Store>, int> serve() {
  for (int port = 26456; port < 26556; ++port) {
    try {
      return {tcp_store("127.0.0.1", port, true, in_s(10), kKey), port};
    } catch (const Error&) {
    }
  }
  throw Error(ErrorCode::system, "no port is free");
}

// Sums until told to stop; every rank hears of the end in the same call.
void work(Group& group, const std::atomic<bool>& stop, std::atomic<long>& wrong, std::atomic<long>& calls) {
  const auto n = static_cast<float>(group.size());
  std::vector<float> data(10'000);
  for (int turn = 0;; ++turn) {
    const auto base = static_cast<float>(turn % 1000);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = base + static_cast<float>(i % 100) + static_cast<float>(group.rank());
    data.back() = stop ? 1 : 0;
    group.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    for (std::size_t i = 0; i + 1 < data.size(); ++i)
      wrong += data[i] != n * (base + static_cast<float>(i % 100)) + n * (n - 1) / 2 ? 1 : 0;
    ++calls;
    if (data.back() > 0) return;
  }
}

GroupOptions joining(int rank, int size, int port, const std::string& prefix) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.store = tcp_store("127.0.0.1", port, false, in_s(60), kKey);
  options.prefix = prefix;
  options.timeout = std::chrono::seconds(60);
  options.interface = "lo";
  return options;
}

// One who does not know the key, and throws what he can think of.
class Stranger {
 public:
  explicit Stranger(std::uint64_t seed) : random_(seed) {}

  void throw_at(int port) {
    live::FileDescriptor socket;
    try {
      socket = live::connect_tcp({"127.0.0.1", port}, live::now_ns());
    } catch (const Error&) {
      return;  // nobody listens there any more
    }
    const auto bytes = something();
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (random_.below(4) == 0) answer_challenge(socket);
    if (random_.below(20) == 0) {  // stays, half open
      kept_.push_back(std::move(socket));
      if (kept_.size() > 300) kept_.erase(kept_.begin());
      return;
    }
    const linger at_once{1, 0};  // no connection of ours is left waiting in the kernel
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  std::vector<std::byte> something() {
    std::vector<std::byte> bytes(random_.below(300));
    for (auto& b : bytes) b = static_cast<std::byte>(random_.below(256));
    if (random_.below(3) == 0) return bytes;
    // The hello of a member, as it may have been seen on the wire, whole or changed.
    const wire::EphemeralKey ephemeral = wire::draw_ephemeral_key();
    wire::Introduction i;
    i.purpose = random_.below(2) == 0 ? wire::Purpose::data : wire::Purpose::store;
    i.encrypt = random_.below(2) == 0;
    i.from = static_cast<std::uint32_t>(random_.below(4));
    i.to = static_cast<std::uint32_t>(random_.below(4));
    const wire::Initiator member(wire::Secret{}, i, ephemeral);
    bytes.insert(bytes.begin(), member.hello().begin(), member.hello().end());
    for (std::uint64_t flips = random_.below(4); flips > 0; --flips)
      bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1U << random_.below(8));
    return bytes;
  }

  void answer_challenge(const live::FileDescriptor& socket) {
    std::array<std::byte, wire::kChallengeBytes + wire::kProofBytes> bytes;
    if (!live::wait_ready(socket, false, live::now_ns() + 2'000'000)) return;
    if (::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) <= 0) return;
    for (auto& b : bytes) b = static_cast<std::byte>(random_.below(256));
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  Random random_;
  std::vector<live::FileDescriptor> kept_;
};

TEST(Strangers, DoNoHarmToARunningJob) {
  const char* wanted = std::getenv("TALWEG_STRANGERS");
  const long many = wanted != nullptr ? std::atol(wanted) : 3000;
  const Variable quiet("TALWEG_DEBUG", "NONE");
  const Variable key("TALWEG_KEY", kKey);
  const auto [store, port] = serve();

  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0}, calls{0}, formed{0};
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kVictims + 2);
  const auto guarded = [&](std::size_t i, auto body) {
    threads.emplace_back([&errors, &stop, i, body] {
      try {
        body();
      } catch (const std::exception& e) {
        errors[i] = e.what();
        stop = true;
      }
    });
  };
  for (int r = 0; r < kVictims; ++r)
    guarded(static_cast<std::size_t>(r), [&, r, p = port] {
      const auto group = Group::join(joining(r, kVictims, p, "job/"));
      work(*group, stop, wrong, calls);
    });
  // Beside them a group of two that forms anew all the time: its listeners are open while it does.
  std::atomic<int> round{0};
  for (int r = 0; r < 2; ++r)
    guarded(static_cast<std::size_t>(kVictims + r), [&, r, p = port] {
      const auto s = tcp_store("127.0.0.1", p, false, in_s(60), kKey);
      for (int turn = 0;; ++turn) {
        const std::string prefix = "pair" + std::to_string(turn) + "/";
        if (r == 0) s->set(prefix + "last", stop ? "yes" : "no");
        const bool last = s->get(prefix + "last", in_s(60)) == "yes";
        const auto group = Group::join(joining(r, 2, p, prefix));
        float one = 1;
        group->all_reduce(&one, &one, 1, DataType::f32, ReduceOp::sum);
        wrong += one != 2 ? 1 : 0;
        formed += r;
        if (r == 0) round = turn + 1;
        if (last) return;
      }
    });

  // Strangers know where the pair listens: they scan; here the store tells.
  std::vector<std::thread> crowd;
  for (int s = 0; s < 2; ++s)
    crowd.emplace_back([&, s, p = port, st = store] {
      Stranger stranger(static_cast<std::uint64_t>(s) + 7);
      for (long i = s; i < many && !stop; i += 2) {
        stranger.throw_at(p);
        if (i % 8 > 1) continue;
        try {
          std::istringstream card(
              st->get("pair" + std::to_string(round.load()) + "/rank0", std::chrono::steady_clock::now()));
          std::string word;
          int data_port = 0;
          card >> word >> word >> word >> data_port;
          stranger.throw_at(data_port);
        } catch (const Error&) {
        }
      }
    });
  for (auto& thread : crowd) thread.join();
  const long calls_under_fire = calls;
  stop = true;
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(calls_under_fire, 0);
  EXPECT_GT(formed, 0);
  EXPECT_GT(store->refused_connections(), 0U);
  std::printf("%ld strangers, %lu dropped by the store, %ld sums checked, %ld groups formed\n", many,
              static_cast<unsigned long>(store->refused_connections()), calls.load(), formed.load());
}

}  // namespace
}  // namespace talweg
