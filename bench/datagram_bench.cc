// How many bytes per second datagrams carry over loopback, one thread and one core at each end: sealed and
// sent as they are; with a whole flow on top (protocol/datagram/flow.h); with a flow without its rate control
// ("free"). Each by protection, and with and without offload.
//
//   datagram_bench [--json] [seconds per line, 1] [payload bytes, 1400]
//
// Each datagram is opened and each byte of a flow read and compared. Beside the rate stands what it would be
// for a core of one's own: bytes by the CPU time of the busier end. --json: an object a line.
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "live/udp/udp_end.h"

using namespace talweg;

namespace {

struct Setting {
  const char* name;
  wire::DatagramSuite suite;
  bool offload;
};

struct Result {
  double seconds = 0, sender_cpu = 0, receiver_cpu = 0;
  std::uint64_t bytes = 0, datagrams = 0, lost = 0, wrong = 0;
};

const wire::Secret kKey = wire::secret_from_text("a key for measurements");
constexpr wire::DatagramScope kThere{7, 1, 0, 1}, kBack{7, 1, 1, 0};

double thread_cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::max(1U, std::thread::hardware_concurrency()), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Until something has come, so that waiting costs no time of a core.
void wait_for(int fd) {
  pollfd p{fd, POLLIN, 0};
  ::poll(&p, 1, 1);
}

const live::UdpAddress kLoopback("127.0.0.1:0");

// Sealed, sent, received and opened, and nothing else. What the receiver has seen tells the sender how much
// its buffer has room for, through memory.
Result run_datagrams(const Setting& setting, double seconds, std::size_t payload) {
  const live::UdpSocket from(kLoopback), to(kLoopback, {.merge = setting.offload});
  std::atomic<std::uint64_t> seen{0};
  std::atomic<bool> stop{false};
  Result result;
  std::thread receiver([&] {
    pin(1);
    live::UdpReceiver in(to);
    wire::DatagramOpener opener(kKey, kThere, setting.suite);
    const double before = thread_cpu();
    std::uint64_t highest = 0;
    while (!stop) {
      wait_for(to.fd());
      in.receive([&](live::UdpReceiver::Datagram& d) {
        wire::DatagramHeader header;
        if (opener.open(d.bytes, header) != wire::DatagramRefusal::none)
          ++result.wrong;
        else
          ++result.datagrams, result.bytes += header.length, highest = header.number + 1;
      });
      seen.store(highest, std::memory_order_release);
    }
    result.lost = highest - result.datagrams;
    result.receiver_cpu = thread_cpu() - before;
  });
  pin(0);
  live::UdpSender out(from, {.offload = setting.offload});
  const auto there = out.add(to.address());
  wire::DatagramSealer sealer(kKey, kThere, setting.suite);
  const std::vector<std::byte> data(payload, std::byte{42});
  const std::size_t most = wire::kDatagramHeaderBytes + payload + trailer_bytes(setting.suite.protection);
  const std::uint64_t window = to.window() / (most + 800);
  const double before = thread_cpu();
  const std::int64_t begin = live::now_ns();
  std::int64_t heard = begin;
  for (std::uint64_t last = 0; live::now_ns() - begin < static_cast<std::int64_t>(seconds * 1e9);) {
    const std::uint64_t now_seen = seen.load(std::memory_order_acquire);
    if (now_seen != last) heard = live::now_ns();
    last = now_seen;
    // Whatever was dropped would never be seen.
    if (sealer.number() - now_seen + 64 > window && live::now_ns() - heard < 50'000'000) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    for (int i = 0; i < 64; ++i) {
      std::byte* const at = out.place(there, wire::kOrdinary, most);
      if (at == nullptr) break;
      wire::DatagramHeader header{.type = 40, .length = static_cast<std::uint16_t>(payload)};
      out.placed(sealer.seal(header, data.data(), at));
    }
    out.flush();
  }
  result.seconds = static_cast<double>(live::now_ns() - begin) * 1e-9;
  result.sender_cpu = thread_cpu() - before;
  stop = true;
  receiver.join();
  return result;
}

Result run_flow(const Setting& setting, double seconds, std::size_t payload, bool rate_control) {
  live::UdpSocket a(kLoopback), b(kLoopback, {.merge = setting.offload});
  const live::UdpAddress to_a = a.address(), to_b = b.address();
  live::UdpEndOptions options;
  options.suite = setting.suite;
  options.sender.offload = setting.offload;
  options.most_payload = payload;
  options.flow.packets = 8192;
  options.flow.rate.enabled = rate_control;
  options.flow.send_bytes = options.flow.receive_bytes = 256U << 10;
  std::atomic<bool> stop{false};
  Result result;
  std::vector<std::byte> data(1U << 16);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 131 + i / 256);
  std::thread receiver([&] {
    pin(1);
    live::UdpEnd end(std::move(b), std::span(&to_a, 1), {kKey, kKey}, kBack, options);
    const double before = thread_cpu();
    while (!stop) {
      wait_for(end.socket().fd());
      const std::int64_t now = live::now_ns();
      end.receive(now);
      for (auto bytes = end.flow().readable(0); !bytes.empty(); bytes = end.flow().readable(0)) {
        const std::size_t at = result.bytes % data.size();
        const std::size_t n = std::min(bytes.size(), data.size() - at);
        result.wrong += std::memcmp(bytes.data(), data.data() + at, n) != 0 ? 1 : 0;
        result.bytes += n;
        end.flow().consumed(0, n);
      }
      end.flow().on_time(now);
      end.send(now);
    }
    result.datagrams = end.received().datagrams;
    result.receiver_cpu = thread_cpu() - before;
  });
  pin(0);
  live::UdpEnd end(std::move(a), std::span(&to_b, 1), {kKey, kKey}, kThere, options);
  const double before = thread_cpu();
  const std::int64_t begin = live::now_ns();
  for (std::uint64_t written = 0; live::now_ns() - begin < static_cast<std::int64_t>(seconds * 1e9);) {
    const std::int64_t now = live::now_ns();
    const std::size_t at = written % data.size();
    written += end.flow().write(0, std::span(data).subspan(at));
    end.send(now);
    if (end.flow().next_time(now) > now) wait_for(end.socket().fd());
    end.receive(live::now_ns());
    end.flow().on_time(live::now_ns());
  }
  result.seconds = static_cast<double>(live::now_ns() - begin) * 1e-9;
  result.sender_cpu = thread_cpu() - before;
  result.lost = end.flow().statistics().lost_by_gap;
  stop = true;
  receiver.join();
  return result;
}

bool json = false;

void print(const char* what, const Setting& setting, const Result& r) {
  const double bits = static_cast<double>(r.bytes) * 8e-9;
  if (json) {
    fmt::print(
        R"({{"what": "{}", "protection": "{}", "offload": {}, "Gbit_per_s": {:.3f}, "Gbit_per_s_per_core": )"
        R"({:.3f}, "lost": {}, "wrong": {}}})"
        "\n",
        what, setting.name, setting.offload, bits / r.seconds, bits / std::max(r.sender_cpu, r.receiver_cpu),
        r.lost, r.wrong);
    std::fflush(stdout);
    return;
  }
  fmt::print("{:10} {:22} {:8} {:6.2f} Gbit/s {:7.3f} M/s {:7.2f} Gbit/s per core  lost {} wrong {}\n", what,
             setting.name, setting.offload ? "offload" : "plain", bits / r.seconds,
             static_cast<double>(r.datagrams) * 1e-6 / r.seconds,
             bits / std::max(r.sender_cpu, r.receiver_cpu), r.lost, r.wrong);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--json") == 0) {
    json = true;
    --argc, ++argv;
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const std::size_t payload = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1400;
  std::string load;
  std::getline(std::ifstream("/proc/loadavg"), load);
  if (!json) fmt::print("payloads of {} bytes, {} s each; load {}\n", payload, seconds, load);
  const live::UdpSocket probe(kLoopback);
  if (!json && !probe.shortage().empty()) fmt::print("{}\n", probe.shortage());
  const auto cipher = wire::has_aes() ? wire::CipherKind::aes256_gcm : wire::CipherKind::chacha20_poly1305;
  std::uint64_t wrong = 0;
  for (const bool offload : {true, false}) {
    for (const auto protection : {wire::DatagramProtection::checksum, wire::DatagramProtection::authenticated,
                                  wire::DatagramProtection::encrypted}) {
      const Setting setting{to_string(protection), {protection, cipher}, offload};
      const Result datagrams = run_datagrams(setting, seconds, payload);
      print("datagrams", setting, datagrams);
      wrong += datagrams.wrong;
      for (const bool rate_control : {true, false}) {
        const Result flow = run_flow(setting, seconds, payload, rate_control);
        print(rate_control ? "flow" : "flow, free", setting, flow);
        wrong += flow.wrong;
      }
    }
  }
  return wrong == 0 ? 0 : 1;
}
