// How fast ns-3 moves packets over the scenario ls16-permutation-30MB of ../sim_bench.cc: 16 hosts, 4 leaves,
// 4 spines, all links 10 Gbit/s and 1 us, host i sends 30 MB to host i + 4. UDP at 9.5 Gbit/s, the least that
// ns-3 can do per packet: no transport, fixed routes (to host h by spine h mod 4), plain queues. One line of
// JSON, as sim_bench's.
#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace {

using namespace ns3;

constexpr std::uint32_t kHosts = 16;
constexpr std::uint32_t kLeaves = 4;
constexpr std::uint32_t kSpines = 4;
constexpr std::uint32_t kHostsPerLeaf = kHosts / kLeaves;
constexpr std::uint64_t kBytes = 30'000'000;
constexpr std::uint16_t kPort = 9;

struct Counted {
  std::uint64_t link_hops = 0;
  std::uint64_t delivered = 0;
  double last_s = 0;
};
Counted counted;

void count_hop(Ptr<const Packet>) {
  ++counted.link_hops;
}

void count_delivery(Ptr<const Packet> packet, const Address&) {
  counted.delivered += packet->GetSize();
  counted.last_s = Simulator::Now().GetSeconds();
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The two ends of a link: address and interface of each.
struct Ends {
  Ipv4Address near, far;
  std::uint32_t near_interface, far_interface;
};

class LeafSpine {
 public:
  LeafSpine() {
    hosts_.Create(kHosts);
    leaves_.Create(kLeaves);
    spines_.Create(kSpines);
    const InternetStackHelper stack;
    for (const NodeContainer* nodes : {&hosts_, &leaves_, &spines_}) stack.Install(*nodes);
    wire_.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    wire_.SetChannelAttribute("Delay", StringValue("1us"));
    wire_.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000p"));
    for (std::uint32_t h = 0; h < kHosts; ++h)
      host_links_.push_back(join(hosts_.Get(h), leaves_.Get(h / kHostsPerLeaf)));
    for (std::uint32_t l = 0; l < kLeaves; ++l)
      for (std::uint32_t s = 0; s < kSpines; ++s)
        spine_links_.push_back(join(leaves_.Get(l), spines_.Get(s)));
    route();
  }

  Ptr<Node> host(std::uint32_t h) const { return hosts_.Get(h); }
  Ipv4Address address(std::uint32_t h) const { return host_links_[h].near; }

 private:
  Ends join(const Ptr<Node>& near, const Ptr<Node>& far) {
    const NetDeviceContainer devices = wire_.Install(near, far);
    const std::string network =
        "10." + std::to_string(networks_ / 256) + "." + std::to_string(networks_ % 256);
    ++networks_;
    Ipv4AddressHelper addresses((network + ".0").c_str(), "255.255.255.0");
    const Ipv4InterfaceContainer ends = addresses.Assign(devices);
    TrafficControlHelper control;
    control.Uninstall(devices);
    for (std::uint32_t d = 0; d < devices.GetN(); ++d)
      devices.Get(d)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&count_hop));
    return {ends.GetAddress(0), ends.GetAddress(1), ends.Get(0).second, ends.Get(1).second};
  }

  void route() {
    const Ipv4StaticRoutingHelper helper;
    const auto table = [&](const Ptr<Node>& node) {
      return helper.GetStaticRouting(node->GetObject<Ipv4>());
    };
    for (std::uint32_t h = 0; h < kHosts; ++h) {
      const Ends& own = host_links_[h];
      table(hosts_.Get(h))->SetDefaultRoute(own.far, own.near_interface);
      for (std::uint32_t l = 0; l < kLeaves; ++l) {
        if (l == h / kHostsPerLeaf) continue;
        const Ends& up = spine_links_[l * kSpines + h % kSpines];
        table(leaves_.Get(l))->AddHostRouteTo(own.near, up.far, up.near_interface);
      }
      const std::uint32_t spine = h % kSpines;
      const Ends& down = spine_links_[h / kHostsPerLeaf * kSpines + spine];
      table(spines_.Get(spine))->AddHostRouteTo(own.near, down.near, down.far_interface);
    }
  }

  NodeContainer hosts_, leaves_, spines_;
  PointToPointHelper wire_;
  std::uint32_t networks_ = 0;
  std::vector<Ends> host_links_, spine_links_;
};

}  // namespace

int main() {
  const LeafSpine network;
  for (std::uint32_t h = 0; h < kHosts; ++h) {
    const std::uint32_t to = (h + kHostsPerLeaf) % kHosts;
    OnOffHelper source("ns3::UdpSocketFactory", InetSocketAddress(network.address(to), kPort));
    source.SetConstantRate(DataRate("9.5Gbps"), 1472);  // with the headers of UDP and IP: 1500 bytes
    source.SetAttribute("MaxBytes", UintegerValue(kBytes));
    source.Install(network.host(h)).Start(Seconds(0));
    PacketSinkHelper sink("ns3::UdpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
    const ApplicationContainer installed = sink.Install(network.host(to));
    installed.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&count_delivery));
  }
  const double begun = cpu_seconds();
  Simulator::Run();
  const double spent = cpu_seconds() - begun;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"scenario\": \"ls16-permutation-30MB\", \"link_hops\": %llu, \"events\": %llu, \"cpu_s\": %.3f, "
      "\"link_hops_per_s\": %.0f, \"last_finish_ms\": %.4f, \"peak_memory_MB\": %.1f}\n",
      static_cast<unsigned long long>(counted.link_hops),
      static_cast<unsigned long long>(Simulator::GetEventCount()), spent,
      static_cast<double>(counted.link_hops) / spent, counted.last_s * 1e3,
      static_cast<double>(usage.ru_maxrss) / 1024);
  Simulator::Destroy();
  return counted.delivered >= kHosts * kBytes ? 0 : 1;
}
