#include "fabric/lab.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/fail.h"
#include "base/host_port.h"
#include "base/settings.h"
#include "cluster/racks.h"
#include "fabric/host_view.h"
#include "fabric/privileges.h"
#include "fabric/relay_plan.h"
#include "fabric/temporary_file.h"
#include "fabric/tool.h"
#include "fabric/tun_device.h"
#include "live/join/job_key.h"
#include "wire/key.h"

namespace talweg::fabric {

namespace {

std::string batch(const std::vector<std::string>& lines) {
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

// On the same routes as the machine's own network a lab would work, but confuse whoever reads the addresses.
std::string free_subnet() {
  std::ifstream file("/proc/net/route");
  std::string line, device;
  std::getline(file, line);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> routes;  // destination and mask
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string destination, gateway, flags, skipped, mask;
    fields >> device >> destination >> gateway >> flags >> skipped >> skipped >> skipped >> mask;
    routes.emplace_back(ntohl(static_cast<std::uint32_t>(std::stoul(destination, nullptr, 16))),
                        ntohl(static_cast<std::uint32_t>(std::stoul(mask, nullptr, 16))));
  }
  for (std::uint32_t second = 77; second < 256; ++second) {
    const std::uint32_t candidate = 10u << 24 | second << 16;
    bool taken = false;
    for (const auto& [destination, mask] : routes)
      taken |= mask != 0 && ((candidate ^ destination) & mask & 0xffffff00u) == 0;
    if (!taken) return fmt::format("10.{}.0", second);
  }
  throw Error(ErrorCode::unsupported,
              "cannot find a subnet for the lab: 10.77.0.0/24 to 10.255.0.0/24 are all in use");
}

LabMeans find_means() {
  LabMeans means;
  means.subnet = free_subnet();
  NetNamespace::create().run([&] {
    try {
      run_tool({"tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"});
      means.delay = true;
    } catch (const Error&) {
    }
    // One algorithm in every lab, so that measurements on different machines compare; cubic is Linux's own
    // default.
    std::ifstream available("/proc/sys/net/ipv4/tcp_available_congestion_control");
    for (std::string word; available >> word;)
      if (word == "cubic") means.congestion_control = word;
  });
  return means;
}

void quiet_ipv6() {
  for (const char* scope : {"all", "default"})
    set_net_setting(fmt::format("ipv6/conf/{}/disable_ipv6", scope), "1");
}

void prepare_switches(const LabPlan& plan) {
  quiet_ipv6();
  run_tool({"ip", "-batch", "-"}, batch(plan.bridges_ip));
  // Frames on a bridge would otherwise walk the firewall's rules.
  for (const char* table : {"iptables", "ip6tables", "arptables"})
    set_net_setting(fmt::format("bridge/bridge-nf-call-{}", table), "0");
}

// One queue at each end: a program in the driver's path (XDP) wants equal numbers.
std::string veth_line(const HostPlan& host, const NetNamespace& net) {
  constexpr const char* kQueues = "mtu 1500 numtxqueues 1 numrxqueues 1";
  return fmt::format("link add {} {} type veth peer name eth0 {} netns {}", host.port, kQueues, kQueues,
                     net.path());
}

void prepare_host(const HostPlan& host) {
  for (const char* scope : {"all", "default"}) {
    set_net_setting(fmt::format("ipv4/conf/{}/send_redirects", scope), "0");
    set_net_setting(fmt::format("ipv4/conf/{}/rp_filter", scope), "0");
  }
  if (host.forwards && !set_net_setting("ipv4/ip_forward", "1"))
    throw_system("let a host of the lab forward packets");
  run_tool({"ip", "-batch", "-"}, batch(host.ip));
  run_tool({"tc", "-batch", "-"}, batch(host.tc));
}

constexpr int kFirstPort = 29500,
              kLastPort = 29999;  // from the port that PyTorch's launcher takes, below ephemeral ones

// On this host, nobody listens there. Asked of the kernel, because several programs can run in one lab.
int free_port(const LabHost& host, int first) {
  int port = 0;
  host.net.run([&] {
    for (port = first; port <= kLastPort; ++port) {
      if (port == host.switch_port) continue;
      const FileDescriptor socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      if (bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
    }
    throw_error(ErrorCode::system, "cannot find a free port on {}: {} to {} are taken", host.name, first,
                kLastPort);
  });
  return port;
}

// What the calling thread's eth0 was to send and nobody read: /proc/net/dev has it as "drop", the twelfth
// number.
std::uint64_t unread_packets() {
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string device;
    fields >> device;
    std::uint64_t number = 0;
    for (int i = 0; i < 12; ++i) fields >> number;
    if (device == "eth0:") return number;
  }
  return 0;
}

// Where its switch listens.
std::string switch_place(const LabHost& host) {
  return fmt::format("{}:{}", host.address, host.switch_port);
}

}  // namespace

Lab::Lab(std::vector<LabHost> hosts, NetNamespace switches, const LabPlan& plan)
    : hosts_(std::move(hosts)),
      switches_(std::move(switches)),
      warnings_(plan.warnings),
      whole_(plan.left_out.empty()),
      network_(cluster::to_yaml(plan.network)) {
  if (!whole_) warnings_.push_back(plan.left_out);
  for (const cluster::Node& node : plan.network.nodes) {
    const auto place = parse_host_port(node.switch_at);
    const auto host = std::ranges::find(hosts_, node.name, &LabHost::name);
    if (place && host != hosts_.end()) host->switch_port = place->port;
    if (host != hosts_.end()) host->above = node.above;
  }
  for (const HostPlan& planned : plan.hosts)
    if (const auto host = std::ranges::find(hosts_, planned.name, &LabHost::name); host != hosts_.end())
      host->group = planned.group;
  const std::vector<int> racks = cluster::racks_of(plan.network);
  for (std::size_t worker = 0; worker < racks.size(); ++worker)
    if (const auto host = std::ranges::find(hosts_, plan.network.nodes[worker].name, &LabHost::name);
        host != hosts_.end())
      host->rack = plan.network.nodes[static_cast<std::size_t>(racks[worker])].name;
}

Lab Lab::build(const cluster::Cluster& cluster) {
  plan_lab(cluster, {});  // a cluster that cannot be emulated is refused before anything else is asked for
  gain_lab_privileges();
  const LabPlan plan = plan_lab(cluster, find_means());
  NetNamespace switches = NetNamespace::create();
  std::vector<LabHost> hosts;
  std::vector<std::string> ports_ip;
  for (const HostPlan& host : plan.hosts) {
    hosts.push_back({host.name, host.worker, host.address, NetNamespace::create()});
    hosts.back().net.run(quiet_ipv6);
    ports_ip.push_back(veth_line(host, hosts.back().net));
  }
  ports_ip.insert(ports_ip.end(), plan.ports_ip.begin(), plan.ports_ip.end());
  switches.run([&] {
    prepare_switches(plan);
    run_tool({"ip", "-batch", "-"}, batch(ports_ip));
    run_tool({"tc", "-batch", "-"}, batch(plan.ports_tc));
  });
  for (std::size_t h = 0; h < hosts.size(); ++h) hosts[h].net.run([&] { prepare_host(plan.hosts[h]); });
  return Lab(std::move(hosts), std::move(switches), plan);
}

Lab Lab::build_relayed(const cluster::Cluster& cluster, const RelayOptions& options) {
  plan_relayed_lab(cluster, {});
  auto relay = std::make_unique<Relay>(cluster, options);
  gain_lab_privileges();
  const LabPlan plan = plan_relayed_lab(cluster, find_means());
  std::vector<LabHost> hosts;
  for (const HostPlan& host : plan.hosts) {
    hosts.push_back({host.name, host.worker, host.address, NetNamespace::create()});
    hosts.back().net.run([&] {
      quiet_ipv6();
      relay->attach({host.node, host.address, make_tun_device("eth0")});
      prepare_host(host);
    });
  }
  Lab lab(std::move(hosts), NetNamespace::create(), plan);
  lab.relay_ = std::move(relay);
  return lab;
}

RelayReport Lab::relay_report() const {
  if (!relay_) return {};
  RelayReport report = relay_->report();
  for (const LabHost& host : hosts_) host.net.run([&] { report.unread += unread_packets(); });
  return report;
}

LaunchResult Lab::run(const std::vector<std::string>& command, const std::string& cluster_file,
                      const LaunchOptions& options, const LabHelpers& helpers) const {
  std::vector<const LabHost*> workers;
  std::string hosts_file = "127.0.0.1 localhost\n";
  for (const LabHost& host : hosts_) {
    hosts_file += fmt::format("{} {}\n", host.address, host.name);
    if (host.worker) workers.push_back(&host);
  }
  const int port = free_port(*workers.at(0), kFirstPort), second_port = free_port(*workers[0], port + 1);
  const auto key = live::find_job_key();
  const std::string drawn_key = wire::random_key_text();
  LaunchOptions how = options;
  std::error_code gone;
  std::string file = std::filesystem::canonical(cluster_file, gone).string();  // standard input is not theirs
  std::optional<TemporaryFile> network;
  if (!whole_ || !std::filesystem::is_regular_file(file, gone))
    how.files.push_back(file = network.emplace(".yaml", network_).path());
  // A key of their own, which nobody who holds the job's can join them with.
  std::optional<TemporaryFile> switch_key;
  std::vector<std::pair<std::string, std::string>> switch_settings;
  const bool has_switches =
      std::ranges::any_of(hosts_, [](const LabHost& host) { return host.switch_port > 0; });
  std::string switches;  // where they listen; empty: none is started
  if (!helpers.switch_command.empty() && resolve("TALWEG_SWITCH").value.empty())
    for (const LabHost& host : hosts_)
      if (host.switch_port > 0) switches += (switches.empty() ? "" : ",") + switch_place(host);
  if (!switches.empty()) {
    switch_key.emplace(".key", wire::random_key_text() + "\n", TemporaryFile::For::owner);
    how.files.push_back(switch_key->path());
    switch_settings = {{"TALWEG_SWITCH", switches}, {"TALWEG_SWITCH_KEY_FILE", switch_key->path()}};
  } else if (has_switches && resolve("TALWEG_SWITCH").value.empty()) {
    switch_settings = {{"TALWEG_SWITCH", "none"}};  // what the file has is not where this lab is
  }
  const auto place_of = [&](const std::string& name) {
    return switch_place(*std::ranges::find(hosts_, name, &LabHost::name));
  };
  const auto on = [&](const LabHost& host, std::vector<std::string> program) {
    Process process;
    process.command = std::move(program);
    process.environment = {
        {"WORLD_SIZE", std::to_string(workers.size())},
        {"MASTER_ADDR", workers[0]->address},
        {"MASTER_PORT", std::to_string(port)},
        {"TALWEG_AGGREGATORS_AT", fmt::format("tcp://{}:{}", workers[0]->address, second_port)},
        {"TALWEG_KEY", key ? key->text : drawn_key},
        {"TALWEG_KEY_FILE", ""},
        {"TALWEG_CLUSTER", file},
        {"TALWEG_SOCKET_IFNAME", "eth0"},
        {"GLOO_SOCKET_IFNAME", "eth0"}};
    process.environment.insert(process.environment.end(), switch_settings.begin(), switch_settings.end());
    if (!switches.empty() && !host.rack.empty())
      process.environment.emplace_back("TALWEG_SWITCH", place_of(host.rack));
    process.before_exec = [&host, &hosts_file] { enter_host(host.net, host.name, hosts_file); };
    return process;
  };
  std::vector<Process> processes;
  if (relay_) {
    Process carrier;
    carrier.label = "relay";
    carrier.carries = true;
    carrier.body = [this] { return relay_->carry(); };
    processes.push_back(std::move(carrier));
  }
  for (std::size_t r = 0; r < workers.size(); ++r) {
    Process rank = on(*workers[r], command);
    rank.label = std::to_string(r);
    rank.environment.insert(rank.environment.end(),
                            {{"RANK", rank.label}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
    processes.push_back(std::move(rank));
  }
  for (const LabHost& host : hosts_) {
    std::vector<std::string> program;
    if (host.switch_port > 0 && !switches.empty()) {
      program = helpers.switch_command;
      program.insert(program.end(), {"--listen", switch_place(host), "--key-file", switch_key->path()});
      if (!host.group.empty()) program.insert(program.end(), {"--multicast", host.group});
      if (!host.above.empty()) program.insert(program.end(), {"--above", place_of(host.above)});
    } else if (host.switch_port == 0 && !host.worker && !helpers.aggregator.empty()) {
      program = helpers.aggregator;
      program.push_back(host.name);
    }
    if (program.empty()) continue;
    Process process = on(host, std::move(program));
    process.label = host.name;
    process.aggregates = true;
    processes.push_back(std::move(process));
  }
  return launch(processes, how);
}

}  // namespace talweg::fabric
