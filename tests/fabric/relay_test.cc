// A relay between hosts of this machine: what it does to packets of real sockets. Nothing here depends on how
// quick it is.
#include "fabric/relay.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "fabric/launch_fixture.h"
#include "fabric/net_namespace.h"
#include "fabric/privileges.h"
#include "fabric/relay_plan.h"
#include "fabric/tool.h"
#include "fabric/tun_device.h"
#include "talweg/error.h"
#include "wire/traffic_class.h"

namespace talweg::fabric {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint16_t kPort = 4711;
constexpr std::uint8_t kMarkable = wire::traffic_class(0, false);
constexpr std::uint8_t kDroppableClass = wire::traffic_class(wire::kDroppable, false);

cluster::Cluster star_of(int hosts, double rate, Nanoseconds latency = {}) {
  return cluster::uniform_star(hosts, Bandwidth{rate}, latency);
}

// Two leaves of a host each, and two spines: a loop, with a latency.
cluster::Cluster two_spines() {
  cluster::Cluster c;
  for (const char* name : {"a", "b"}) c.nodes.push_back({name, cluster::NodeKind::worker});
  for (const char* name : {"leaf0", "leaf1", "spine0", "spine1"})
    c.nodes.push_back({name, cluster::NodeKind::switch_});
  for (const auto& [one, other] : {std::pair{0, 2}, {1, 3}, {2, 4}, {3, 4}, {2, 5}, {3, 5}}) {
    c.links.push_back({one, other, Bandwidth{1e9}, Nanoseconds{50'000}});
    c.links.push_back({other, one, Bandwidth{1e9}, Nanoseconds{50'000}});
  }
  return c;
}

TEST(RelayPlan, HasAllOfANetworkThatBridgesCannotBe) {
  const LabPlan plan = plan_relayed_lab(two_spines(), {.congestion_control = "cubic"});
  EXPECT_EQ(plan.network, two_spines());
  EXPECT_EQ(plan.left_out, "");
  EXPECT_THAT(plan.warnings, IsEmpty());
  ASSERT_EQ(plan.hosts.size(), 2U);
  EXPECT_EQ(plan.hosts[1].name, "b");
  EXPECT_EQ(plan.hosts[1].node, 1);
  EXPECT_THAT(plan.hosts[1].ip, Contains("route add 10.77.0.0/24 dev eth0 src 10.77.0.2 congctl cubic"));
  EXPECT_THAT(plan.bridges_ip, IsEmpty());
}

TEST(RelayPlan, HoldsAHostToItsLinksAndToWhatTheyShare) {
  cluster::Cluster c = star_of(2, 1.514e8);
  EXPECT_THAT(plan_relayed_lab(c, {}).hosts[0].tc, Contains(HasSubstr("tbf rate 150000000bit burst 16384b")));
  cluster::Cluster inner = star_of(2, 1e8);
  inner.nodes.back().can_aggregate = true;
  EXPECT_THAT(plan_relayed_lab(inner, {}).hosts[2].tc, IsEmpty());
  inner.nodes.back().kind = cluster::NodeKind::aggregator;
  EXPECT_THAT(plan_relayed_lab(inner, {}).hosts[2].tc, Not(IsEmpty()));
  c.groups.push_back({"shared", Bandwidth{1.514e7}, {0, 1, 2, 3}});
  EXPECT_THAT(plan_relayed_lab(c, {}).hosts[0].tc, Contains(HasSubstr("tbf rate 15000000bit")));
}

TEST(RelayPlan, ANameThatIsOutOfReachIsUnreachable) {
  cluster::Cluster c;
  for (const char* name : {"a", "b"}) c.nodes.push_back({name, cluster::NodeKind::worker});
  c.links = {{0, 1, Bandwidth{1e9}, {}}};
  const LabPlan plan = plan_relayed_lab(c, {});
  EXPECT_THAT(plan.hosts[0].ip, Not(Contains(HasSubstr("unreachable"))));
  EXPECT_THAT(plan.hosts[1].ip, Contains("route add unreachable 10.77.0.1/32"));
}

TEST(RelayPlan, RefusesWhatIsNoLab) {
  EXPECT_THROW(plan_relayed_lab({}, {}), Error);
  EXPECT_THROW(plan_relayed_lab(star_of(kMaxLabHosts + 1, 1e9), {}), Error);
}

TEST(Relay, RefusesPoliciesThatCannotWork) {
  RelayOptions options;
  options.network.switch_queue.priorities = 9;
  EXPECT_THROW(Relay(star_of(2, 1e9), options), Error);
}

// Hosts with a relay between them, which runs as long as the object.
class RelayedHosts {
 public:
  RelayedHosts(const cluster::Cluster& cluster, const RelayOptions& options) : relay_(cluster, options) {
    gain_lab_privileges();
    for (const HostPlan& host : plan_relayed_lab(cluster, {}).hosts) {
      hosts_.push_back(NetNamespace::create());
      hosts_.back().run([&] {
        set_net_setting("ipv6/conf/default/disable_ipv6", "1");  // which asks for routers of its own accord
        relay_.attach({host.node, host.address, make_tun_device("eth0")});
        run_tool({"ip", "-batch", "-"}, fmt::format("{}\n", fmt::join(host.ip, "\n")));
        run_tool({"tc", "-batch", "-"}, fmt::format("{}\n", fmt::join(host.tc, "\n")));
      });
    }
    sigset_t end, before;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, &before);
    process_.emplace("start a relay", [&] { relay_.carry(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  RelayReport report() {
    process_->kill(SIGTERM);
    EXPECT_EQ(process_->wait(), 0);
    return relay_.report();
  }
  // A socket of host `h` at the port.
  FileDescriptor socket_of(std::size_t h) const {
    FileDescriptor fd;
    hosts_[h].run([&] { fd = FileDescriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); });
    const sockaddr_in here = place_of(h);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    const timeval patience{30, 0};  // what does not come by then does not come
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
  }
  // As it is, out of the device of host `h`.
  void send_raw(std::size_t h, const std::vector<std::uint8_t>& bytes) const {
    FileDescriptor fd;
    sockaddr_ll device{};
    hosts_[h].run([&] {
      fd = FileDescriptor(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
      device.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
    });
    device.sll_family = AF_PACKET;
    device.sll_protocol = htons(0x0800);
    EXPECT_EQ(sendto(fd.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&device),
                     sizeof device),
              static_cast<ssize_t>(bytes.size()));
  }
  static sockaddr_in place_of(std::size_t h) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kPort);
    address.sin_addr.s_addr = htonl(0x0a4d0001U + static_cast<std::uint32_t>(h));
    return address;
  }

 private:
  std::vector<NetNamespace> hosts_;
  Relay relay_;
  std::optional<ChildProcess> process_;
};

struct Heard {
  std::string text;
  std::uint8_t traffic_class = 0;
};

void say_to(const FileDescriptor& from, const sockaddr_in& to, const std::string& text, int traffic_class) {
  setsockopt(from.get(), IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
  ASSERT_EQ(
      sendto(from.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
      static_cast<ssize_t>(text.size()));
}

Heard hear(const FileDescriptor& at) {
  std::array<char, 2048> text{}, control{};
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(at.get(), &message, 0);
  if (n < 0) {
    ADD_FAILURE() << "nothing came: " << strerror(errno);
    return {};
  }
  Heard heard{{text.data(), static_cast<std::size_t>(n)}};
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) heard.traffic_class = *CMSG_DATA(c);
  return heard;
}

class RelayedLab : public testing::Test {
 protected:
  // Empty where this machine gives no such thing; the test is then marked as skipped.
  std::unique_ptr<RelayedHosts> hosts(const cluster::Cluster& cluster, const RelayOptions& options = {}) {
    try {
      return std::make_unique<RelayedHosts>(cluster, options);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::unsupported) throw;
      why_ = e.what();
      return nullptr;
    }
  }
  std::string why_;
};

TEST_F(RelayedLab, CarriesQuestionsAndAnswersWithAllOfThem) {
  const auto lab = hosts(two_spines());
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  for (int i = 0; i < 50; ++i) {
    const std::string question(static_cast<std::size_t>(1 + 29 * i), static_cast<char>('a' + i % 26));
    say_to(a, RelayedHosts::place_of(1), question, kMarkable);
    EXPECT_EQ(hear(b).text, question);
    say_to(b, RelayedHosts::place_of(0), "heard " + question, 0);
    const Heard answer = hear(a);
    EXPECT_EQ(answer.text, "heard " + question);
    EXPECT_EQ(answer.traffic_class, 0);
  }
  const RelayReport report = lab->report();
  EXPECT_TRUE(report.whole);
  EXPECT_EQ(report.carried, 100U);
  EXPECT_EQ(report.malformed + report.unroutable + report.refused, 0U);
  EXPECT_EQ(report.links[0].packets, 50U);                            // a->leaf0
  EXPECT_EQ(report.links[4].packets + report.links[8].packets, 50U);  // to either spine
}

// The way there is a hundred times as fast as the last link, on which packets meet a queue.
cluster::Cluster with_a_slow_end() {
  cluster::Cluster c = star_of(2, 5e8);
  for (cluster::Link& link : c.links)
    if (link.to == 1) link.capacity = Bandwidth{5e6};
  return c;
}

TEST_F(RelayedLab, MarksArriveWhereAQueueIsLongAndNothingIsLost) {
  RelayOptions options;
  options.network.switch_queue.mark_bytes = 5000;
  const auto lab = hosts(with_a_slow_end(), options);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  for (int i = 0; i < 40; ++i) say_to(a, RelayedHosts::place_of(1), std::string(1400, 'x'), kMarkable);
  std::uint64_t marked = 0;
  for (int i = 0; i < 40; ++i) {
    const Heard heard = hear(b);
    EXPECT_EQ(heard.text, std::string(1400, 'x'));  // with a checksum that the kernel takes
    const bool mark = (heard.traffic_class & wire::kEcnMask) == wire::kEcnMarked;
    marked += mark ? 1 : 0;
    EXPECT_TRUE(i > 2 || !mark);
  }
  EXPECT_GT(marked, 0U);
  const RelayReport report = lab->report();
  EXPECT_EQ(report.carried, 40U);
  std::uint64_t counted = 0;
  for (const sim::LinkCounters& link : report.links) counted += link.marked[wire::kOrdinary];
  EXPECT_EQ(counted, marked);
}

TEST_F(RelayedLab, WhatIsNotEcnCapableIsDroppedInstead) {
  RelayOptions options;
  options.network.switch_queue.mark_bytes = 5000;
  const auto lab = hosts(with_a_slow_end(), options);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  for (int i = 0; i < 40; ++i) say_to(a, RelayedHosts::place_of(1), "no", kDroppableClass);
  for (int i = 0; i < 40; ++i) say_to(a, RelayedHosts::place_of(1), std::string(1400, 'x'), kDroppableClass);
  say_to(a, RelayedHosts::place_of(1), "end", kMarkable);
  std::uint64_t came = 0;
  for (Heard heard = hear(b); !heard.text.empty() && heard.text != "end"; heard = hear(b)) ++came;
  EXPECT_LT(came, 80U);
  const RelayReport report = lab->report();
  std::uint64_t dropped = 0;
  for (const sim::LinkCounters& link : report.links) dropped += link.dropped[wire::kOrdinary];
  EXPECT_EQ(dropped, 80U - came);
}

// Urgent ones that are sent last come before the last of the others.
TEST_F(RelayedLab, AnUrgentClassOvertakesByItsDscp) {
  RelayOptions options;
  options.network.switch_queue.priorities = 8;
  const auto lab = hosts(with_a_slow_end(), options);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  for (int i = 0; i < 60; ++i) say_to(a, RelayedHosts::place_of(1), std::string(1400, 'x'), kMarkable);
  say_to(a, RelayedHosts::place_of(1), "urgent", wire::traffic_class(0, true));
  int before = 0;
  while (hear(b).text == std::string(1400, 'x')) ++before;
  EXPECT_LT(before, 60);
}

TEST_F(RelayedLab, DoublesAndDamagesOnlyAsItIsTold) {
  RelayOptions options;
  options.network.loss.duplicate = 1;
  const auto lab = hosts(star_of(2, 1e9), options);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  say_to(a, RelayedHosts::place_of(1), "once", kMarkable);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(hear(b).text, "once");  // each of two links doubles it
  EXPECT_EQ(lab->report().carried, 4U);
}

// The kernel throws away what does not agree with its checksum.
TEST_F(RelayedLab, WhatIsDamagedIsHandedOverAndNotTaken) {
  RelayOptions options;
  options.network.loss.damage = 0.3;
  const auto lab = hosts(star_of(2, 1e9), options);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  for (int i = 0; i < 40; ++i) say_to(a, RelayedHosts::place_of(1), std::string(1000, 'x'), kMarkable);
  for (int i = 0; i < 20; ++i) say_to(a, RelayedHosts::place_of(1), "end", kMarkable);
  int came = 0;
  for (Heard heard = hear(b); !heard.text.empty() && heard.text != "end"; heard = hear(b), ++came)
    EXPECT_EQ(heard.text, std::string(1000, 'x'));
  EXPECT_GT(came, 0);
  EXPECT_LT(came, 40);
  EXPECT_GE(lab->report().carried, 41U);
}

TEST_F(RelayedLab, CountsWhatHasNotArrivedWhenItEnds) {
  cluster::Cluster far = star_of(3, 1e9);
  for (cluster::Link& link : far.links)
    if (link.to == 1) link.latency = Nanoseconds{1'000'000'000'000};
  const auto lab = hosts(far);
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), c = lab->socket_of(2);
  for (int i = 0; i < 3; ++i) say_to(a, RelayedHosts::place_of(1), "far away", kMarkable);
  say_to(a, RelayedHosts::place_of(2), "near", kMarkable);
  EXPECT_EQ(hear(c).text, "near");
  const RelayReport report = lab->report();
  EXPECT_EQ(report.inside, 3U);
  EXPECT_EQ(report.carried, 1U);
}

TEST_F(RelayedLab, CountsWhatIsForNobodyHere) {
  const auto lab = hosts(star_of(2, 1e9));
  if (!lab) GTEST_SKIP() << why_;
  const FileDescriptor a = lab->socket_of(0), b = lab->socket_of(1);
  say_to(a, RelayedHosts::place_of(77), "nobody", kMarkable);
  lab->send_raw(0, {0x45});                               // the beginning of a packet
  lab->send_raw(0, std::vector<std::uint8_t>(60));        // of no version
  lab->send_raw(0, std::vector<std::uint8_t>(60, 0x60));  // IPv6
  say_to(a, RelayedHosts::place_of(1), "somebody", kMarkable);
  EXPECT_EQ(hear(b).text, "somebody");
  const RelayReport report = lab->report();
  EXPECT_EQ(report.foreign, 2U);
  EXPECT_EQ(report.malformed, 2U);
  EXPECT_EQ(report.carried, 1U);
}

}  // namespace
}  // namespace talweg::fabric
