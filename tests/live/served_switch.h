// A switch that serves in a thread, and workers that sum at it, each in a thread of its own.
#pragma once

#include <gmock/gmock.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kernel/half.h"
#include "live/aggregation/switch_client.h"
#include "live/aggregation/switch_service.h"
#include "own_address.h"
#include "talweg/error.h"

namespace talweg::live {

using wire::AggregationFormat;

inline constexpr std::int64_t kSwitchSecond = 1'000'000'000;
// Nothing here takes as long unless it hangs.
inline std::int64_t soon() {
  return now_ns() + 20 * kSwitchSecond;
}

// Ends, and is an error, when nothing comes of it.
inline void wait_until(const std::function<bool()>& holds) {
  const std::int64_t deadline_ns = soon();
  while (!holds()) {
    if (now_ns() > deadline_ns) return ADD_FAILURE() << "what was waited for has not come";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A switch that serves in a thread of its own.
class Served {
 public:
  explicit Served(SwitchServiceOptions options = {}) : service_(with_place(std::move(options))) {
    thread_ = std::thread([this] { service_.serve(); });
  }
  ~Served() { stop(); }
  void stop() {
    service_.stop();
    if (thread_.joinable()) thread_.join();
  }
  void join() { thread_.join(); }
  // That its thread has worked so far.
  std::int64_t processor_ns() {
    clockid_t clock{};
    timespec time{};
    EXPECT_EQ(::pthread_getcpuclockid(thread_.native_handle(), &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &time), 0);
    return time.tv_sec * kSwitchSecond + time.tv_nsec;
  }
  const SwitchService& service() const { return service_; }
  SwitchService& service() { return service_; }
  SwitchClientOptions worker(std::uint16_t number, std::uint16_t of, const std::string& job = "a") const {
    SwitchClientOptions o;
    o.address = service_.address();
    o.job = job;
    o.worker = number;
    o.workers = of;
    o.join_deadline_ns = soon();
    return o;
  }

 private:
  static SwitchServiceOptions with_place(SwitchServiceOptions o) {
    // Where it was it can be started again: nobody else is given that port.
    if (o.listen.host.empty()) o.listen = {own_address(), 0};
    return o;
  }
  SwitchService service_;
  std::thread thread_;
};

// All workers of a job, each in a thread; the errors, by worker.
using Worker = std::function<void(SwitchClient&, std::uint16_t number)>;
inline std::vector<std::string> run(const std::vector<SwitchClientOptions>& workers, const Worker& work) {
  std::vector<std::string> errors(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        SwitchClient client(workers[i]);
        work(client, workers[i].worker);
      } catch (const Error& e) {
        errors[i] = std::string(name(e.code())) + ": " + e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}
inline std::vector<SwitchClientOptions> all(const Served& served, std::uint16_t n,
                                            const std::string& job = "a") {
  std::vector<SwitchClientOptions> workers;
  for (std::uint16_t w = 0; w < n; ++w) workers.push_back(served.worker(w, n, job));
  return workers;
}
inline void expect_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}
// `what` fails, with this in its text.
inline void expect_error(const std::function<void()>& what, ErrorCode code, const std::string& text) {
  try {
    what();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(name(e.code()), std::string(name(code))) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(text));
  }
}

// What is sent leaves twice, and how much of it holds this number in a row is counted.
struct Wiretap {
  explicit Wiretap(float number) : wanted(8, number) {}
  const std::vector<float> wanted;
  std::atomic<int> sent{0}, found{0};
  UdpSender::SendCall call() {
    return [this](int fd, mmsghdr* messages, unsigned n) {
      for (unsigned i = 0; i < n; ++i) {
        std::vector<std::byte> all;
        for (std::size_t part = 0; part < messages[i].msg_hdr.msg_iovlen; ++part) {
          const iovec& io = messages[i].msg_hdr.msg_iov[part];
          const auto* const data = static_cast<const std::byte*>(io.iov_base);
          all.insert(all.end(), data, data + io.iov_len);
        }
        ++sent;
        found += std::ranges::search(all, std::as_bytes(std::span(wanted))).empty() ? 0 : 1;
      }
      ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
      return ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
    };
  }
};

inline SwitchVector vector_of(std::vector<std::byte>& bytes, AggregationFormat format, bool sparse = false) {
  return {bytes.data(), bytes.data(), bytes.size(), bytes.size(), format, sparse};
}

// Small whole numbers, which every format holds and adds without rounding. Zero in all of a block of 64 where
// the draw says so.
inline int value_of(std::uint64_t seed, std::uint16_t worker, std::size_t i, double density) {
  if (Random(seed, worker * 100'000ULL + i / 64).uniform() >= density) return 0;
  return static_cast<int>((i * 7 + worker * 13 + seed) % 17) - 8;
}
inline std::vector<std::byte> encoded(const std::vector<int>& values, AggregationFormat format) {
  std::vector<std::byte> bytes(values.size() * wire::bytes_in_memory(format));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = static_cast<float>(values[i]);
    const auto put = [&](auto v) { std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v); };
    if (format == AggregationFormat::i32)
      put(values[i]);
    else if (format == AggregationFormat::f16)
      put(kernel::f32_to_f16(number));
    else if (format == AggregationFormat::bf16)
      put(kernel::f32_to_bf16(number));
    else
      put(number);
  }
  return bytes;
}
struct Case {
  std::size_t count = 0;
  AggregationFormat format = AggregationFormat::f32;
  bool sparse = false;
  double density = 1;
};
inline void sum_and_check(SwitchClient& client, std::uint16_t number, std::uint16_t workers,
                          std::uint64_t seed, const Case& c) {
  std::vector<int> mine(c.count), sum(c.count);
  for (std::size_t i = 0; i < c.count; ++i)
    for (std::uint16_t w = 0; w < workers; ++w) {
      const int value = value_of(seed, w, i, c.density);
      sum[i] += value;
      if (w == number) mine[i] = value;
    }
  std::vector<std::byte> bytes = encoded(mine, c.format);
  client.all_reduce(vector_of(bytes, c.format, c.sparse), soon());
  EXPECT_TRUE(bytes == encoded(sum, c.format))
      << c.count << " of " << wire::name(c.format) << " at worker " << number;
}

}  // namespace talweg::live
