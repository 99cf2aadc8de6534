// NCCL's topology of one server, or of several that share NVLinks: what NCCL_TOPO_DUMP_FILE writes.
//
//   <system version="1">
//     <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
//       <pci busid="0000:16:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
//         <pci busid="0000:18:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
//           <gpu dev="0" sm="80" rank="0"> <nvlink target="0000:07:00.0" count="12" tclass="0x068000"/>
//           </gpu>
//         </pci>
//         <pci busid="0000:19:00.0" class="0x020000" ...> <nic> <net name="mlx5_0" speed="200000"/> </nic>
//         </pci>
// ...
// GPUs are workers in the order of their ranks (of "dev" where there are none). Sockets, PCIe bridges, NICs
// and the NVSwitch are switches; all NICs meet in one network. What nothing can pass through is left out:
// NICs, if there is but one.
//
// Rates are those that NCCL's own search takes (its src/graph/topo.h): PCIe by generation and width, NVLink
// by count and the GPU's architecture, sockets by vendor and model, networks by their speed, 10 Gbit/s if
// they do not tell. Latencies, which NCCL does not keep by link, are assumed: 0.7 us for NVLink, 0.5 us for a
// hop on PCIe or between sockets, 2.5 us for a NIC, or what its "latency" says. NVLinks to what is not in the
// file are left out, as NCCL does.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/builder.h"
#include "formats/import.h"
#include "text/xml_reader.h"

namespace talweg::formats {
namespace {

constexpr Nanoseconds kNvlinkLatency{700};
constexpr Nanoseconds kPcieLatency{500};
constexpr double kNicMicroseconds = 2.5;
constexpr double kNicMbitPerSecond = 10'000;
constexpr int kMostDepth = 64;  // of PCIe bridges behind each other

Bandwidth gigabytes(double per_second) {
  return {per_second * 8e9};
}

// NCCL's table, in units of 1/80 GB/s and lane.
double lane_rate(const text::XmlReader& pci) {
  static constexpr std::array<std::pair<std::string_view, double>, 6> kRates{
      {{"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}}};
  const std::string speed = pci.text("link_speed", "");
  if (speed.empty()) return 60;
  std::string number = speed.substr(0, speed.find(' '));
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  for (const auto& [gigatransfers, rate] : kRates)
    if (number == gigatransfers) return rate;
  pci.fail(fmt::format("link_speed: expected 2.5, 5, 8, 16, 32 or 64 GT/s, got \"{}\"", speed));
}

Bandwidth pcie_rate(const text::XmlReader& pci) {
  const auto width = pci.text("link_width", "").empty() ? 0 : pci.integer("link_width", 0, 64);
  return gigabytes(static_cast<double>(width == 0 ? 16 : width) * lane_rate(pci) / 80);
}

// Nodes are named after it.
std::string bus_of(const text::XmlReader& pci) {
  std::string bus = pci.text("busid");
  if (bus.empty() || bus.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos)
    pci.fail(fmt::format("busid: expected one such as 0000:1b:00.0, got \"{}\"", bus));
  return bus;
}

double nvlink_gigabytes(std::int64_t sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12;
  return sm >= 70 ? 20 : 18;
}

double socket_gigabytes(const text::XmlReader& cpu) {
  const std::string arch = cpu.text("arch", "x86_64"), vendor = cpu.text("vendor", "");
  if (arch == "ppc64") return 32;
  if (arch == "arm64") return 6;
  if (vendor == "AuthenticAMD") return 16;
  if (vendor != "GenuineIntel" || !cpu.has("modelid")) return 6;
  const auto model = cpu.integer("modelid", 0, 1 << 20);
  if (model >= 0xcf) return 40;   // Emerald Rapids
  if (model >= 0x8f) return 22;   // Sapphire Rapids
  return model >= 0x55 ? 10 : 6;  // Skylake, Broadwell
}

class NcclImporter {
 public:
  NcclImporter(const text::XmlDocument& document, const std::string& origin)
      : root_(document.root()), builder_(origin) {}

  Cluster build() {
    if (root_.name() != "system") root_.fail("expected <system>");
    const auto cpus = root_.children({"cpu"});
    for (const text::XmlReader& cpu : cpus)
      hosts_.emplace(cpu.text("host_hash", ""), static_cast<int>(hosts_.size()));
    for (const text::XmlReader& cpu : cpus) find_gpus(cpu, host_of(cpu), 0);
    if (gpus_.empty()) root_.fail("expected at least one <gpu>, or a <pci> of class 0x0302");
    add_gpus();
    for (std::size_t i = 0; i < cpus.size(); ++i) add_cpu(cpus[i], i);
    connect_sockets(cpus);
    for (const Gpu& gpu : gpus_) connect_nvlinks(gpu);
    builder_.drop_dead_ends();
    return builder_.finish();
  }

 private:
  struct Gpu {
    text::XmlReader pci;
    int host = 0;
    std::optional<text::XmlReader> element;  // <gpu>; files written by hand leave it to NCCL
    std::int64_t rank = 0;
    int node = 0;
  };
  struct Cpu {
    int host = 0;
    int node = 0;
  };

  static bool is_gpu(const text::XmlReader& pci) { return pci.text("class", "").starts_with("0x0302"); }

  static std::vector<text::XmlReader> below_pci(const text::XmlReader& pci) {
    return pci.children({"pci", "gpu", "nic"});
  }

  int host_of(const text::XmlReader& cpu) const { return hosts_.at(cpu.text("host_hash", "")); }

  // Names and bus numbers are of one host each.
  std::string name(int host, const std::string& text) const {
    return hosts_.size() > 1 ? fmt::format("server{}.{}", host, text) : text;
  }

  void find_gpus(const text::XmlReader& element, int host, int depth) {
    if (depth > kMostDepth) element.fail(fmt::format("more than {} bridges behind each other", kMostDepth));
    const bool cpu = element.name() == "cpu";
    std::optional<text::XmlReader> gpu;
    for (const text::XmlReader& child : cpu ? element.children({"pci", "nic"}) : below_pci(element)) {
      if (child.name() == "pci") find_gpus(child, host, depth + 1);
      if (child.name() == "gpu") gpu = child;
    }
    if (gpu || (!cpu && is_gpu(element))) gpus_.push_back({element, host, gpu});
  }

  // Their numbers: ranks, or devices, or the order in the file, whichever all of them have.
  void add_gpus() {
    constexpr std::int64_t kMostRank = 1 << 24;
    const char* key = nullptr;
    for (const char* candidate : {"dev", "rank"})
      if (std::ranges::all_of(gpus_,
                              [&](const Gpu& gpu) { return gpu.element && gpu.element->has(candidate); }))
        key = candidate;
    for (std::size_t i = 0; i < gpus_.size(); ++i)
      gpus_[i].rank =
          key == nullptr ? static_cast<std::int64_t>(i) : gpus_[i].element->integer(key, 0, kMostRank);
    std::ranges::stable_sort(gpus_, [](const Gpu& a, const Gpu& b) { return a.rank < b.rank; });
    for (Gpu& gpu : gpus_) {
      gpu.node = builder_.add({.name = fmt::format("gpu{}", gpu.rank)}, gpu.pci.line());
      if (!gpu_by_bus_.emplace(std::pair(gpu.host, bus_of(gpu.pci)), gpu.node).second)
        gpu.pci.fail("busid: expected another one for every GPU");
    }
  }

  int add_switch(const std::string& name, const text::XmlReader& element) {
    return builder_.add({.name = name, .kind = NodeKind::switch_}, element.line());
  }

  void add_cpu(const text::XmlReader& cpu, std::size_t index) {
    const int host = host_of(cpu);
    const int node = add_switch(fmt::format("cpu{}", index), cpu);
    cpus_.push_back({host, node});
    for (const text::XmlReader& child : cpu.children({"pci", "nic"})) {
      if (child.name() == "pci")
        add_pci(child, node, host);
      else
        add_nic(child, node, fmt::format("nic-cpu{}-{}", index, child.line()), pcie_rate(child));
    }
  }

  void add_pci(const text::XmlReader& pci, int parent, int host) {
    const std::string bus = bus_of(pci);
    const Bandwidth rate = pcie_rate(pci);
    if (const auto gpu = gpu_by_bus_.find({host, bus}); gpu != gpu_by_bus_.end()) {
      builder_.connect(gpu->second, parent, rate, kPcieLatency, pci.line());
      for (const text::XmlReader& child : below_pci(pci))
        if (child.name() == "gpu") connect_c2c(child, gpu->second);
      return;
    }
    int bridge = -1;
    for (const text::XmlReader& child : below_pci(pci)) {
      if (child.name() == "nic") {
        add_nic(child, parent, name(host, "nic-" + bus), rate);
      } else {
        if (bridge < 0) {
          bridge = add_switch(name(host, "pci-" + bus), pci);
          builder_.connect(bridge, parent, rate, kPcieLatency, pci.line());
        }
        add_pci(child, bridge, host);
      }
    }
  }

  void add_nic(const text::XmlReader& nic, int parent, const std::string& name, Bandwidth rate) {
    const auto ports = nic.children({"net"});
    if (ports.empty()) return;
    const int node = add_switch(name, nic);
    builder_.connect(node, parent, rate, kPcieLatency, nic.line());
    if (network_ < 0) network_ = add_switch("network", nic);
    for (const text::XmlReader& port : ports) {
      const double speed = port.at_least_zero("speed", kNicMbitPerSecond);
      const double written = port.at_least_zero("latency", 0);
      const double microseconds = written > 0 ? written : kNicMicroseconds;
      if (microseconds > 1e12) port.fail("latency: too long");
      builder_.connect(node, network_, {(speed > 0 ? speed : kNicMbitPerSecond) * 1e6},
                       {std::llround(microseconds * 1e3)}, port.line());
    }
  }

  // Links from chip to chip, between a GPU and its socket, each way; bandwidths in MB/s.
  void connect_c2c(const text::XmlReader& gpu, int node) {
    for (const text::XmlReader& child : gpu.children({"nvlink", "c2c"})) {
      if (child.name() != "c2c") continue;
      const double count = child.has("count") ? static_cast<double>(child.integer("count", 1, 1024)) : 1;
      builder_.connect(node, cpus_.back().node, gigabytes(child.above_zero("bw") * count / 1000),
                       kNvlinkLatency, child.line());
    }
  }

  void connect_sockets(const std::vector<text::XmlReader>& cpus) {
    for (std::size_t i = 0; i < cpus.size(); ++i)
      for (std::size_t j = i + 1; j < cpus.size(); ++j)
        if (cpus_[i].host == cpus_[j].host)
          builder_.connect(cpus_[i].node, cpus_[j].node, gigabytes(socket_gigabytes(cpus[i])), kPcieLatency,
                           cpus[j].line());
  }

  void connect_nvlinks(const Gpu& gpu) {
    if (!gpu.element) return;
    for (const text::XmlReader& link : gpu.element->children({"nvlink", "c2c"})) {
      if (link.name() != "nvlink") continue;
      const double rate = nvlink_gigabytes(gpu.element->integer("sm", 0, 1000)) *
                          static_cast<double>(link.integer("count", 1, 1024));
      const std::string target = link.text("target"), kind = link.text("tclass", "0x030200");
      if (kind.starts_with("0x0680")) {
        builder_.connect(gpu.node, nvswitch(gpu.host, link), gigabytes(rate), {kNvlinkLatency.value / 2},
                         link.line());
      } else if (kind.starts_with("0x0302")) {
        const auto other = gpu_by_bus_.find({gpu.host, target});
        if (other != gpu_by_bus_.end())
          builder_.connect_one_way(gpu.node, other->second, gigabytes(rate), kNvlinkLatency, link.line());
      } else {
        link.fail(
            fmt::format("tclass: expected 0x030200 (a GPU) or 0x068000 (an NVSwitch), got \"{}\"", kind));
      }
    }
  }

  // The NVSwitches of one host act as one, as in NCCL.
  int nvswitch(int host, const text::XmlReader& link) {
    const auto found = nvswitches_.find(host);
    if (found != nvswitches_.end()) return found->second;
    const int node = add_switch(name(host, "nvswitch"), link);
    nvswitches_.emplace(host, node);
    return node;
  }

  const text::XmlReader root_;
  Builder builder_;
  std::vector<Gpu> gpus_;
  std::vector<Cpu> cpus_;
  std::map<std::string, int> hosts_;  // by "host_hash"
  std::map<std::pair<int, std::string>, int> gpu_by_bus_;
  std::map<int, int> nvswitches_;  // by host
  int network_ = -1;
};

}  // namespace

Cluster import_nccl(const std::string& text, const std::string& origin) {
  const text::XmlDocument document(text, origin);
  return NcclImporter(document, origin).build();
}

}  // namespace talweg::formats
