// SwitchML's workers at a switch, over real sockets: each worker has a loopback address of its own, as it is
// known by that alone.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "live/aggregation/switchml_client.h"
#include "live/aggregation/switchml_port.h"
#include "talweg/error.h"

namespace talweg::live {
namespace {

using protocol::SwitchmlElements;
using ::testing::HasSubstr;

std::string host_of_worker(std::size_t worker) {
  return fmt::format("127.0.0.{}", 11 + worker);
}

SwitchmlPortOptions port_for(std::size_t workers, std::uint16_t elements = 256) {
  SwitchmlPortOptions options;
  options.host = "127.0.0.1";
  options.first_port = 0;
  for (std::size_t w = 0; w < workers; ++w) options.workers.push_back(host_of_worker(w));
  options.elements = elements;
  return options;
}

std::int64_t soon() {
  return now_ns() + 60'000'000'000;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Each worker in a thread of its own; what one throws is thrown here.
void run(std::size_t workers, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> thrown(workers);
  for (std::size_t w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      try {
        work(w);
      } catch (...) {
        thrown[w] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : thrown)
    if (error) std::rethrow_exception(error);
}

TEST(Switchml, WorkersSumIntegersAndFloatsThroughIt) {
  for (const std::size_t workers : {1, 2, 5})
    for (const std::uint16_t elements : {std::uint16_t{64}, std::uint16_t{256}}) {
      SwitchmlPort port(port_for(workers, elements));
      run(workers, [&](std::size_t w) {
        SwitchmlClientOptions options;
        options.address = {"127.0.0.1", port.first_port()};
        options.local = {host_of_worker(w), 0};
        options.workers = static_cast<std::uint8_t>(workers);
        options.elements = elements;
        SwitchmlClient client(options);
        for (const std::size_t count : {1, 255, 256, 257, 100'000, 3, 70'001}) {
          std::vector<std::int32_t> in(count), out(count);
          for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<std::int32_t>(i * 7 + w);
          client.all_reduce({reinterpret_cast<std::byte*>(in.data()),
                             reinterpret_cast<std::byte*>(out.data()), count, SwitchmlElements::i32},
                            soon());
          const auto n = static_cast<std::int32_t>(workers);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(out[i], static_cast<std::int32_t>(i * 7) * n + n * (n - 1) / 2) << i << " of " << count;

          std::vector<float> x(count);
          for (std::size_t i = 0; i < count; ++i)
            x[i] = std::sin(static_cast<float>(i)) * static_cast<float>(w + 1);
          auto* const bytes = reinterpret_cast<std::byte*>(x.data());
          client.all_reduce({bytes, bytes, count, SwitchmlElements::f32}, soon());
          const float factor = static_cast<float>(n * (n + 1)) / 2;
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_NEAR(x[i], std::sin(static_cast<float>(i)) * factor, 1e-5F * factor)
                << i << " of " << count;
        }
      });
      const SwitchmlPortStatus status = port.status();
      EXPECT_EQ(status.here, workers);
      EXPECT_GT(status.counters.rounds, 0U);
      EXPECT_EQ(status.counters.malformed, 0U);
    }
}

// Threads have slots and ports of their own, of the worker and of the switch.
TEST(Switchml, ThreadsOfAWorkerAreAnsweredWhereEachIs) {
  constexpr std::size_t kWorkers = 2, kThreads = 3, kCount = 50'000;
  SwitchmlPortOptions served = port_for(kWorkers);
  served.slots = 96;
  // A port for each thread, side by side, wherever there are so many.
  std::optional<SwitchmlPort> port;
  for (served.first_port = 20'000; !port; served.first_port += kThreads) try {
      served.last_port = served.first_port + static_cast<int>(kThreads) - 1;
      port.emplace(served);
    } catch (const Error&) {
      ASSERT_LT(served.first_port, 60'000);
    }
  run(kWorkers * kThreads, [&](std::size_t i) {
    const std::size_t w = i / kThreads, t = i % kThreads;
    SwitchmlClientOptions options;
    options.address = {"127.0.0.1", port->first_port() + static_cast<int>(t)};
    options.local = {host_of_worker(w), 0};
    options.workers = kWorkers;
    options.first_slot = static_cast<std::uint16_t>(32 * t);
    options.slots = 32;
    SwitchmlClient client(options);
    std::vector<std::int32_t> x(kCount, static_cast<std::int32_t>(10 * t + w));
    auto* const bytes = reinterpret_cast<std::byte*>(x.data());
    client.all_reduce({bytes, bytes, kCount, SwitchmlElements::i32}, soon());
    for (const std::int32_t value : x) ASSERT_EQ(value, static_cast<std::int32_t>(20 * t + 1));
  });
}

// Bytes written out by hand, from what is published, and sent by a socket of the system's.
TEST(Switchml, SpeaksThePublishedPackets) {
  SwitchmlPort port(port_for(2, 64));
  const auto socket_at = [](const std::string& host) {
    FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in local{};
    local.sin_family = AF_INET;
    ::inet_pton(AF_INET, host.c_str(), &local.sin_addr);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
    return fd;
  };
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(port.first_port()));
  ::inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
  const FileDescriptor first = socket_at(host_of_worker(0)), second = socket_at(host_of_worker(1)),
                       stranger = socket_at("127.0.0.77");
  // kind 3 and size class 1 (256 bytes), job 9, packet 0x01020304, version 1 of slot 5; exponents 4 and -2.
  std::array<unsigned char, 10 + 256> packet{0x31, 9, 1, 2, 3, 4, 0x80, 5, 4, 0xfe};
  const auto send = [&](const FileDescriptor& from) {
    ASSERT_EQ(::sendto(from.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&there),
                       sizeof there),
              static_cast<ssize_t>(packet.size()));
  };
  packet[10 + 3] = 200;   // the first integer is 200,
  packet[10 + 4] = 0xff;  // the second -1
  packet[10 + 5] = 0xff;
  packet[10 + 6] = 0xff;
  packet[10 + 7] = 0xff;
  send(stranger);
  send(first);
  packet[8] = 7;
  packet[10 + 3] = 100;
  send(second);
  for (const FileDescriptor* const worker : {&first, &second}) {
    pollfd polled{worker->get(), POLLIN, 0};
    ASSERT_EQ(::poll(&polled, 1, 30'000), 1);
    std::array<unsigned char, 2000> answer{};
    ASSERT_EQ(::recv(worker->get(), answer.data(), answer.size(), 0), static_cast<ssize_t>(packet.size()));
    EXPECT_EQ(std::memcmp(answer.data(), packet.data(), 8), 0)
        << "all but the exponents comes back as it was sent";
    EXPECT_EQ(answer[8], 7);
    EXPECT_EQ(answer[9], 0xfe);
    EXPECT_EQ(answer[10 + 2], 1);  // 300
    EXPECT_EQ(answer[10 + 3], 44);
    EXPECT_EQ(answer[10 + 6], 0xff);  // -2
    EXPECT_EQ(answer[10 + 7], 0xfe);
  }
  EXPECT_EQ(port.status().strays.strangers, 1U);
  EXPECT_EQ(port.status().counters.contributions, 2U);
}

TEST(Switchml, WhoseAddressesChangeWithoutEndIsAnsweredAtTheLastOnes) {
  SwitchmlPortOptions served = port_for(1, 64);
  served.slots = 2000;
  SwitchmlPort port(served);
  std::vector<float> x(64, 1.5F);
  auto* const bytes = reinterpret_cast<std::byte*>(x.data());
  for (int turn = 0; turn < 1500;
       ++turn) {  // of which each has another port, and so more than are remembered
    SwitchmlClientOptions options;
    options.address = {"127.0.0.1", port.first_port()};
    options.local = {host_of_worker(0), 0};
    options.elements = 64;
    options.first_slot = static_cast<std::uint16_t>(turn);
    options.slots = 1;
    SwitchmlClient client(options);
    client.all_reduce({bytes, bytes, 64, SwitchmlElements::f32}, soon());
    EXPECT_EQ(x[63], 1.5F);
  }
}

// Anybody on a worker's host can send anything; it must not take the place of the worker's own port.
TEST(Switchml, WhatIsNoPacketTakesNobodysPlace) {
  SwitchmlPort port(port_for(2, 64));
  const UdpAddress there(fmt::format("127.0.0.1:{}", port.first_port()));
  run(2, [&](std::size_t w) {
    SwitchmlClientOptions options;
    options.address = {"127.0.0.1", port.first_port()};
    options.local = {host_of_worker(w), 0};
    options.workers = 2;
    options.elements = 64;
    SwitchmlClient client(options);
    for (int turn = 0; turn < 20; ++turn) {
      for (int i = 0; i < 100; ++i) {
        const UdpSocket stranger(UdpAddress(fmt::format("{}:0", host_of_worker(w))));
        ASSERT_EQ(::sendto(stranger.fd(), "x", 1, 0, there.raw(), there.bytes()), 1);
      }
      std::vector<std::int32_t> x(1000, static_cast<std::int32_t>(w + 1));
      auto* const bytes = reinterpret_cast<std::byte*>(x.data());
      client.all_reduce({bytes, bytes, x.size(), SwitchmlElements::i32}, soon());
      ASSERT_EQ(x[999], 3);
    }
  });
  EXPECT_EQ(port.status().counters.malformed, 2U * 20U * 100U);
}

TEST(Switchml, WhatCannotBeServedIsSaidInOneLine) {
  const auto refuses = [](const SwitchmlPortOptions& options) {
    return message_of([&] { SwitchmlPort port(options); });
  };
  SwitchmlPortOptions options = port_for(2);
  options.host = "0.0.0.0";
  EXPECT_THAT(refuses(options), HasSubstr("SwitchML's packets do not prove who has sent them"));
  options.anybody = true;
  EXPECT_EQ(refuses(options), "");
  options = port_for(0);
  EXPECT_THAT(refuses(options), HasSubstr("at least 1 worker"));
  EXPECT_THAT(refuses(port_for(33)), HasSubstr("at most 32 workers"));
  options = port_for(2);
  options.workers[1] = options.workers[0];
  EXPECT_THAT(refuses(options), HasSubstr("two workers have one host"));
  options = port_for(2);
  options.first_port = 50'000;
  EXPECT_THAT(refuses(options), HasSubstr("not to 50000 to 48879"));
  options = port_for(2);
  options.memory_bytes = 1000;
  EXPECT_THAT(refuses(options), HasSubstr("bytes of slots"));
  EXPECT_THAT(refuses(port_for(2, 128)), HasSubstr("64 or 256 elements"));

  SwitchmlPort port(port_for(2));
  SwitchmlClientOptions alone;
  alone.address = {"127.0.0.1", port.first_port()};
  alone.local = {host_of_worker(0), 0};
  alone.workers = 2;
  SwitchmlClient client(alone);
  std::vector<float> x(1000);
  auto* const bytes = reinterpret_cast<std::byte*>(x.data());
  EXPECT_THAT(message_of([&] {
                client.all_reduce({bytes, bytes, x.size(), SwitchmlElements::f32}, now_ns() + 200'000'000);
              }),
              HasSubstr("sum at SwitchML's switch 127.0.0.1:"));
}

}  // namespace
}  // namespace talweg::live
