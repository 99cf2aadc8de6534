// Joining.
#include "talweg/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/settings.h"
#include "formats/import.h"
#include "group/environment.h"
#include "group/group_impl.h"
#include "group/joining.h"
#include "group/switch_wish.h"
#include "group/within.h"
#include "steer/assumed_network.h"
#include "steer/plan_chooser.h"

namespace talweg {

namespace {

// Ranks that each name one switch may name those of their racks (GroupImpl::use_switch).
std::string switches_alike(const std::string& named) {
  const bool one = !named.empty() && named != "none" && named.find(',') == std::string::npos;
  return one ? "one switch" : named;
}

std::uint64_t digest(const std::string& text) {
  const std::vector<std::int64_t> bytes(text.begin(), text.end());
  return wire::layout_digest(bytes.data(), bytes.size());
}

// What a group is told from outside, besides how to meet.
struct Wishes {
  observe::ObserverOptions seeing;
  ResolvedSetting cluster_file, algorithm;
  std::string switches;  // as TALWEG_SWITCH names them
  group::NamedAlgorithms named;
  group::SwitchWish sums;
  std::optional<cluster::Cluster> network;
  bool probes = switch_of("TALWEG_PROBE");
  bool replan = switch_of("TALWEG_REPLAN");
  bool pacing = switch_of("TALWEG_PACING");

  Wishes(const GroupOptions& options, int rank, int size)
      : seeing(observe::find_observer_options(rank)),
        cluster_file(resolve("TALWEG_CLUSTER", options.cluster_file)),
        algorithm(resolve("TALWEG_ALGO", options.algorithm)),
        switches(resolve("TALWEG_SWITCH", options.switch_address).value),
        named(group::take_apart(algorithm.value)) {
    const steer::PlanChooser understood(steer::assumed_network({0}), named.trees, nullptr);
    if (!cluster_file.value.empty()) network = formats::load_any(cluster_file.value);
    if (network && network->workers() != size) {
      // It is the network of the group that this one is made within, and not all of that are here.
      if (!options.within)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} describes {} workers, the group has {} ranks", cluster_file.value,
                                network->workers(), size));
      network.reset();
      cluster_file = {};
      if (switches.empty()) {
        take_over_switches(*options.within);
        return;
      }
    }
    sums = group::find_switch_wish(options, named, network ? &*network : nullptr, rank);
  }

 private:
  // Which switch of the file is whose is said of its workers, by their ranks: these ranks have those that
  // they had there.
  void take_over_switches(const Group& within) {
    const auto* const parent = dynamic_cast<const group::GroupImpl*>(&within);
    const auto theirs = parent != nullptr ? parent->switches() : nullptr;
    if (theirs == nullptr) return;
    sums = theirs->wish();
    for (const group::SwitchWish::At& at : sums.at)
      switches += (switches.empty() ? "" : ",") + to_string(at.address);
  }
};

}  // namespace

std::shared_ptr<Group> Group::join(const GroupOptions& options) {
  const group::Place place = group::find_place(options);
  const Logger log(place.rank);  // says now, not after the meeting, which of its own settings are wrong
  const std::chrono::milliseconds timeout = group::find_timeout(options);
  // Before anybody is waited for: what is wrong here is wrong at once. A group within another one takes what
  // that one was told.
  std::optional<Wishes> wishes;
  if (!options.within) wishes.emplace(options, place.rank, place.size);
  group::Joining joining = group::prepare_joining(options, place, timeout);
  auto& [meeting, store, address_from, connect, engine, aggregator_store] = joining;
  if (options.within)
    if (auto shared = group::join_within(options, place, store.get(), timeout, connect.deadline_ns))
      return shared;
  if (!wishes) wishes.emplace(options, place.rank, place.size);
  auto& [seeing, cluster_file, algorithm, switches, named, sums, network, probes, replan, pacing] = *wishes;

  // Ranks that do not plan alike would not know what to do with each other's chunks.
  connect.alike = {{"TALWEG_ALGO", digest(algorithm.value)},
                   {"TALWEG_SWITCH", digest(switches_alike(switches))},
                   {"TALWEG_CLUSTER", digest(network ? cluster::to_yaml(*network) : "")}};
  for (const auto& [setting, value] : alike_settings()) connect.alike.emplace_back(setting, digest(value));

  // An aggregator serves the job's first group; those that are made from it do without.
  if (network && !options.within && place.size > 1)
    group::expect_aggregators(joining, cluster::aggregator_names(*network),
                              [measured = probes, followed = replan]() -> std::string {
                                // What ranks measure is what is between them.
                                for (const auto& [setting, set] :
                                     {std::pair{"TALWEG_REPLAN", followed}, {"TALWEG_PROBE", measured}})
                                  if (set)
                                    return fmt::format("groups with {} plan without aggregators", setting);
                                return {};
                              }());
  live::Mesh mesh = place.size > 1 ? live::connect_all(*store, connect) : live::Mesh{};
  group::GroupImpl::Identity identity;
  identity.rank = place.rank;
  std::vector<int> host_numbers;
  if (place.size == 1) {
    mesh.connections.resize(1);
    mesh.connections[0].host = fmt::format("{} pid {}", live::host_name(), ::getpid());
    host_numbers = {0};
  }
  int local = 0;
  for (int r = 0; r < place.size; ++r) {
    const live::Connection& c = mesh.connections[static_cast<std::size_t>(r)];
    identity.members.push_back(r);
    identity.hosts.push_back(c.host);
    local += c.local || r == place.rank ? 1 : 0;
    if (place.size > 1) host_numbers.push_back(c.host_number);
  }
  const bool described = network.has_value();
  if (!network) network = steer::assumed_network(host_numbers);
  identity.machines = host_numbers;
  const bool several_hosts =
      std::any_of(host_numbers.begin(), host_numbers.end(), [](int h) { return h > 0; });
  const std::string network_from =
      probes && several_hosts
          ? "measured at the start (TALWEG_PROBE)"
          : fmt::format("{} ({})", cluster_file.value.empty() ? "assumed" : cluster_file.value,
                        name(cluster_file.origin));
  std::vector<std::string> helping;
  for (std::size_t seat = static_cast<std::size_t>(place.size); seat < mesh.connections.size(); ++seat) {
    const live::Connection& c = mesh.connections[seat];
    identity.helpers.push_back({c.rank, c.name, c.host, c.streams.empty()});
    helping.push_back(c.name);
  }
  network = cluster::staffed(*network, helping);
  if (mesh.one_machine && place.size > mesh.cores && network->shared_cores == 0)
    network->shared_cores = mesh.cores;
  const std::string description = fmt::format(
      "rank: {} of {} ({})\nrendezvous: {}\naddress: {} ({})\nshared memory: {} of {} ranks on this host\n"
      "transport to other hosts: {}\nstreams to other hosts: {}\nchecksums on the wire: {}\nsecurity: "
      "{}\nnetwork: {}\n"
      "algorithm: {} ({})\n"
      "plans: {}\npacing: {}\ntimeout: {} ms\nsums computed with: {}\n",
      place.rank, place.size, place.origin, meeting.origin, connect.address, address_from, local, place.size,
      connect.transport == "tcp" ? "tcp"
                                 : fmt::format("{}, UDP ports: {}{}", connect.transport, engine.paths.count,
                                               live::origin_of(engine.paths)),
      connect.streams - (connect.transport == "tcp" ? 0 : 1), engine.stream.checksum ? "on" : "off",
      mesh.security, network_from, algorithm.value.empty() ? "by cost" : algorithm.value,
      name(algorithm.origin),
      !replan               ? "stay"
      : local == place.size ? "stay: all ranks are on this host"
                            : "follow the network",
      !pacing                                  ? "off"
      : described || (probes && several_hosts) ? "as plans have it"
                                               : "off: the network is assumed",
      timeout.count(), kernel::target_name());
  const std::vector<std::string> absent = mesh.absent;
  seeing.rank = place.rank;
  seeing.size = place.size;
  seeing.job = observe::job_number(mesh.job);
  seeing.hosts = identity.hosts;
  seeing.clock_shared = place.rank == 0 || mesh.connections[0].local;
  auto world = std::make_shared<group::World>(place.rank, std::move(mesh), engine, std::move(seeing));
  if (place.rank == 0)
    for (const std::string& aggregator : absent)
      log.log(LogLevel::warn, "plan", "planned without aggregator {}", aggregator);
  // The default level is WARN: who did not ask is not told.
  if (place.rank == 0 && log.level() != LogLevel::warn)
    log.log(LogLevel::version, "init", "talweg {}, {} ranks", TALWEG_VERSION, place.size);
  auto group = std::make_shared<group::GroupImpl>(std::move(world), std::move(identity), std::move(*network),
                                                  named.trees, timeout, description);
  for (std::istringstream lines(log.shows(LogLevel::info) ? group->describe() : ""); lines;) {
    std::string line;
    if (std::getline(lines, line)) log.log(LogLevel::info, "init", "{}", line);
  }
  if (pacing) group->pace(described);
  if (probes && several_hosts) {
    ProbeOptions probe;
    probe.progress = [&log](const std::string& line) { log.log(LogLevel::info, "probe", "{}", line); };
    group->probe(probe);
  }
  if (replan) group->adapt();
  group->use_switch(sums);
  return group;
}

}  // namespace talweg
