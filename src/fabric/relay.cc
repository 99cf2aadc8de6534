#include "fabric/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/fail.h"
#include "base/random.h"
#include "fabric/ip_packet.h"
#include "fabric/lateness.h"
#include "sim/carried_packets.h"
#include "wire/traffic_class.h"

namespace talweg::fabric {

namespace {

constexpr int kBatch = 16;  // packets read from one host before others are looked at

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// What a report has besides its links, as it stands in the file.
struct ReportHead {
  bool whole;
  std::int64_t lasted_ns;
  std::uint64_t carried, inside, foreign, malformed, unroutable, refused;
  std::int64_t median_late_ns, p99_late_ns, worst_late_ns;
};
static_assert(std::is_trivially_copyable_v<sim::LinkCounters>);

class Carrier {
 public:
  Carrier(const cluster::Cluster& cluster, const RelayOptions& options, const std::vector<RelayHost>& hosts)
      : hosts_(hosts),
        host_of_node_(cluster.nodes.size(), -1),
        bytes_(kMostInside),
        lengths_(kMostInside),
        waited_(kMostInside),
        empty_(hosts.size(), 0),
        random_(options.network.seed, cluster.links.size()),
        carried_(cluster, options.network, kMostInside, [this](const auto& arrival) { hand_over(arrival); }) {
    carried_.schedule(options.changes);
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      in_addr address{};
      inet_pton(AF_INET, hosts[h].address.c_str(), &address);
      node_of_[ntohl(address.s_addr)] = hosts[h].node;
      host_of_node_[static_cast<std::size_t>(hosts[h].node)] = static_cast<int>(h);
      polled_.push_back({hosts[h].device.get(), POLLIN, 0});
    }
  }

  void run() {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    const FileDescriptor ended(signalfd(-1, &end, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!ended) throw_system("watch for signals");
    polled_.push_back({ended.get(), POLLIN, 0});
    begun_ = monotonic_ns();
    while (polled_.back().revents == 0) {
      wait();
      for (std::size_t h = 0; h < hosts_.size(); ++h)
        if (polled_[h].revents != 0) read_from(h);
      carried_.advance(now());
    }
  }

  void write_report(const FileDescriptor& file) const {
    ReportHead head{true,
                    std::max<std::int64_t>(last_ - first_, 0),
                    late_.count(),
                    carried_.inside(),
                    foreign_,
                    malformed_,
                    carried_.network().counters().unroutable,
                    refused_,
                    late_.at_most(0.5),
                    late_.at_most(0.99),
                    late_.worst()};
    std::vector<sim::LinkCounters> links;
    for (std::size_t l = 0; l < carried_.network().cluster().links.size(); ++l)
      links.push_back(carried_.network().counters(static_cast<int>(l)));
    const auto bytes = static_cast<off_t>(sizeof head);
    const std::size_t size = links.size() * sizeof links[0];
    if (pwrite(file.get(), links.data(), size, bytes) != static_cast<ssize_t>(size) ||
        pwrite(file.get(), &head, sizeof head, 0) != bytes)
      throw_system("write the relay's report");
  }

 private:
  sim::Picoseconds now() const { return at(monotonic_ns()); }
  sim::Picoseconds at(std::int64_t ns) const { return sim::picoseconds(Nanoseconds{ns - begun_}); }

  void wait() {
    const bool was_full = carried_.full();
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      polled_[h].events = was_full ? 0 : POLLIN;
      polled_[h].revents = 0;
    }
    const sim::Picoseconds next = carried_.next();
    timespec left{};
    const std::int64_t slept_ns = monotonic_ns();
    if (next != sim::kNever) {
      const sim::Picoseconds ps = std::max<sim::Picoseconds>(next - now(), 0);
      const std::int64_t ns = (ps + sim::kPicosecondsPerNanosecond - 1) / sim::kPicosecondsPerNanosecond;
      left.tv_sec = ns / 1'000'000'000;
      left.tv_nsec = ns % 1'000'000'000;
    }
    if (ppoll(polled_.data(), polled_.size(), next == sim::kNever ? nullptr : &left, nullptr) < 0 &&
        errno != EINTR)
      throw_system("wait for packets");
    // Who has overslept does not know for how long something has been there; nor who did not look.
    if (was_full) return;
    if (next == sim::kNever)
      woke_ = monotonic_ns();
    else if (left.tv_sec + left.tv_nsec > 0)
      woke_ = std::min(monotonic_ns(), slept_ns + left.tv_sec * 1'000'000'000 + left.tv_nsec);
  }

  void read_from(std::size_t host) {
    for (int i = 0; i < kBatch && !carried_.full(); ++i) {
      const ssize_t n = read(hosts_[host].device.get(), fresh_.data(), fresh_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        empty_[host] = monotonic_ns();
        return;
      }
      if (n < 0) throw_system("read what {} sends", hosts_[host].address);
      take(host, std::span(fresh_).first(static_cast<std::size_t>(n)));
    }
  }

  void take(std::size_t host, std::span<const std::uint8_t> packet) {
    const std::int64_t came = monotonic_ns();
    if (first_ == 0) first_ = came;
    const auto ip = read_ip(packet);
    const auto to = ip ? node_of_.find(ip->destination) : node_of_.end();
    if (!ip && ip_version(packet) != 6) {
      ++malformed_;
    } else if (to == node_of_.end() || to->second == hosts_[host].node || packet.size() > kRelayMtu) {
      ++foreign_;
    } else {
      const auto slot = carried_.put({.from = hosts_[host].node,
                                      .to = to->second,
                                      .bytes = static_cast<std::uint16_t>(packet.size() + kEthernetBytes),
                                      .priority = wire::priority_of(ip->traffic_class),
                                      .markable = (ip->traffic_class & wire::kEcnMask) != 0,
                                      .spread = ip->flow},
                                     now());
      std::ranges::copy(packet, bytes_[*slot].begin());
      lengths_[*slot] = packet.size();
      waited_[*slot] = came - std::max(empty_[host], woke_);
    }
  }

  void hand_over(const sim::CarriedPackets::Arrival& arrival) {
    const std::span<std::uint8_t> kept = std::span(bytes_[arrival.slot]).first(lengths_[arrival.slot]);
    std::span<std::uint8_t> packet = kept;
    if (arrival.damaged || arrival.marked) {  // of two copies perhaps only this one
      packet = std::span(changed_).first(kept.size());
      std::ranges::copy(kept, packet.begin());
    }
    if (arrival.marked) mark_congestion(packet);
    if (arrival.damaged) flip_payload_bit(packet, random_);
    const int host = host_of_node_[static_cast<std::size_t>(arrival.node)];
    const ssize_t n =
        write(hosts_[static_cast<std::size_t>(host)].device.get(), packet.data(), packet.size());
    if (n != static_cast<ssize_t>(packet.size())) {
      ++refused_;
      return;
    }
    last_ = monotonic_ns();
    late_.add(waited_[arrival.slot] + last_ - begun_ - arrival.time / sim::kPicosecondsPerNanosecond);
  }

  using Bytes = std::array<std::uint8_t, 1536>;
  static_assert(std::tuple_size_v<Bytes> >= kRelayMtu);
  const std::vector<RelayHost>& hosts_;
  std::map<std::uint32_t, int> node_of_;  // by address
  std::vector<int> host_of_node_;
  std::vector<pollfd> polled_;  // hosts, and then the signal that ends it all
  std::vector<Bytes> bytes_;    // by slot
  std::vector<std::size_t> lengths_;
  // How long a packet may have waited to be read: since the last look that found its host's device empty, or
  // since the relay slept, for packets wake it.
  std::vector<std::int64_t> waited_;
  std::vector<std::int64_t> empty_;  // by host
  std::int64_t woke_ = 0;
  Bytes fresh_{};    // what was read last
  Bytes changed_{};  // what is handed over otherwise than it was sent
  Random random_;
  std::int64_t begun_ = 0, first_ = 0, last_ = 0;
  std::uint64_t foreign_ = 0, malformed_ = 0, refused_ = 0;
  Lateness late_;
  sim::CarriedPackets carried_;
};

// Ahead of the programs that it serves, where it may be; and no later than asked for.
void hurry() {
  sched_param urgent{};
  urgent.sched_priority = 1;
  sched_setscheduler(0, SCHED_FIFO, &urgent);
  prctl(PR_SET_TIMERSLACK, 1);
}

}  // namespace

Relay::Relay(const cluster::Cluster& cluster, const RelayOptions& options)
    : cluster_(cluster), options_(options), report_(memfd_create("relay", MFD_CLOEXEC)) {
  if (!report_) throw_system("make room for the relay's report");
  const sim::CarriedPackets can_be(cluster_, options_.network, 1, {});
}

void Relay::attach(RelayHost host) {
  hosts_.push_back(std::move(host));
}

int Relay::carry() const {
  prctl(PR_SET_NAME, "talweg-relay");
  if (ftruncate(report_.get(), 0) != 0) throw_system("make room for the relay's report");
  const auto carrier = std::make_unique<Carrier>(cluster_, options_, hosts_);
  hurry();
  carrier->run();
  carrier->write_report(report_);
  return 0;
}

RelayReport Relay::report() const {
  ReportHead head{};
  RelayReport report;
  report.links.resize(cluster_.links.size());
  const std::size_t size = report.links.size() * sizeof(sim::LinkCounters);
  if (pread(report_.get(), &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) || !head.whole ||
      pread(report_.get(), report.links.data(), size, sizeof head) != static_cast<ssize_t>(size))
    return report;
  report.whole = true;
  report.lasted_ns = head.lasted_ns;
  report.carried = head.carried;
  report.inside = head.inside;
  report.foreign = head.foreign;
  report.malformed = head.malformed;
  report.unroutable = head.unroutable;
  report.refused = head.refused;
  report.median_late_ns = head.median_late_ns;
  report.p99_late_ns = head.p99_late_ns;
  report.worst_late_ns = head.worst_late_ns;
  return report;
}

}  // namespace talweg::fabric
