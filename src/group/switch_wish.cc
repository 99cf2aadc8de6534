#include "group/switch_wish.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "base/host_port.h"
#include "base/settings.h"
#include "cluster/racks.h"
#include "live/aggregation/switch_client.h"
#include "live/join/interface.h"
#include "live/join/job_key.h"
#include "wire/key.h"

namespace talweg::group {

namespace {

constexpr const char* kSetting = "TALWEG_SWITCH";
constexpr const char* kSparseSetting = "TALWEG_SWITCH_SPARSE";
constexpr const char* kFormatSetting = "TALWEG_SWITCH_FORMAT";
constexpr const char* kNoSwitch = "none";  // not those of the cluster file either
constexpr std::size_t kMostSwitches = 16;  // each has a thread of its own on every rank

struct NamedSwitch {
  std::string address;
  std::string by;    // what people are to look at: "TALWEG_SWITCH", "net.yaml: node agg: switch"
  std::string from;  // "environment", "node agg of net.yaml"
};

std::vector<NamedSwitch> find_named(const GroupOptions& options, const cluster::Cluster* network, int rank) {
  std::vector<NamedSwitch> found;
  const ResolvedSetting set = resolve(kSetting, options.switch_address);
  if (set.value == kNoSwitch) return found;
  for (std::size_t begin = 0; !set.value.empty() && begin <= set.value.size();) {
    const std::size_t end = std::min(set.value.find(',', begin), set.value.size());
    found.push_back({set.value.substr(begin, end - begin), kSetting, name(set.origin)});
    begin = end + 1;
  }
  if (!found.empty() || network == nullptr) return found;
  const std::string file = resolve("TALWEG_CLUSTER", options.cluster_file).value;
  const std::vector<int> racks = cluster::racks_of(*network);
  const auto own = static_cast<std::size_t>(rank);
  for (const cluster::Node& node : network->nodes)
    if (!node.switch_at.empty() &&
        (racks.empty() || &node == &network->nodes[static_cast<std::size_t>(racks.at(own))]))
      found.push_back({node.switch_at, fmt::format("{}: node {}: switch", file, node.name),
                       fmt::format("node {} of {}", node.name, file)});
  return found;
}

live::Endpoint endpoint_of(const NamedSwitch& named) {
  const auto place = parse_host_port(named.address);
  if (!place)
    refuse("{}: expected an address and a port, such as 10.0.0.9:4711, got \"{}\"", named.by, named.address);
  return {live::resolve_host(place->host), place->port};
}

}  // namespace

NamedAlgorithms take_apart(const std::string& algorithm) {
  NamedAlgorithms named;
  for (std::size_t begin = 0; begin < algorithm.size();) {
    const std::size_t end = std::min(algorithm.find(';', begin), algorithm.size());
    const std::string part = algorithm.substr(begin, end - begin);
    begin = end + 1;
    if (part == "switch" || part == "all_reduce:switch") {
      named.by_switch = true;
      continue;
    }
    const bool for_all = !part.empty() && part.find(':') == std::string::npos;
    named.reduces_by = named.reduces_by || for_all || part.starts_with("all_reduce:");
    named.trees += (named.trees.empty() ? "" : ";") + part;
  }
  return named;
}

std::optional<wire::AggregationFormat> switch_format() {
  const std::string value = resolve(kFormatSetting).value;
  const auto format = wire::format_of_floats(value);
  if (!format) refuse("{}: expected {}, got \"{}\"", kFormatSetting, wire::kFormatsOfFloats, value);
  return wire::is_coded(*format) ? format : std::nullopt;
}

SwitchSparse switch_sparse() {
  const std::string value = resolve(kSparseSetting).value;
  if (value == "pairs") return SwitchSparse::pairs;
  if (value == "auto") return SwitchSparse::chosen;
  const auto on = switch_in(value);
  if (!on) refuse("{}: expected 0, 1, pairs or auto, got \"{}\"", kSparseSetting, value);
  return *on ? SwitchSparse::blocks : SwitchSparse::none;
}

// Two bytes are too few for what the switch sums exactly.
std::optional<wire::AggregationFormat> format_of(const SwitchWish& wish, DataType type) {
  const auto format = wire::aggregation_format(type);
  if (format == wire::AggregationFormat::f32 && wish.floats_as) return wish.floats_as;
  if (!wish.exact || format == wire::AggregationFormat::i32) return format;
  if (format == wire::AggregationFormat::f32) return wire::AggregationFormat::scaled;
  return std::nullopt;
}

SwitchWish find_switch_wish(const GroupOptions& options, const NamedAlgorithms& named,
                            const cluster::Cluster* network, int rank) {
  const std::vector<NamedSwitch> found = find_named(options, network, rank);
  if (found.empty()) {
    if (named.by_switch && resolve(kSetting, options.switch_address).value != kNoSwitch)
      refuse("TALWEG_ALGO: switch needs {}, the switch's address and port", kSetting);
    return {};
  }
  SwitchWish wish;
  wish.always = named.by_switch;
  wish.wanted = wish.always || !named.reduces_by;
  if (!wish.wanted && found[0].by != kSetting) return {};
  if (found.size() > kMostSwitches)
    refuse("{}: {} switches, a group has at most {}", found[0].by, found.size(), kMostSwitches);
  wish.exact = switch_of("TALWEG_SWITCH_EXACT");
  wish.ordered = switch_of("TALWEG_SWITCH_ORDERED");
  if (wish.exact && wish.ordered)
    refuse(
        "TALWEG_SWITCH_ORDERED: sums of TALWEG_SWITCH_EXACT are the same in any order: expected only one of "
        "them");
  const auto block = static_cast<std::size_t>(whole_number_of("TALWEG_SWITCH_BLOCK"));
  if (const std::string wrong = live::wrong_block(block); !wrong.empty())
    refuse("TALWEG_SWITCH_BLOCK: {}", wrong);
  wish.block = static_cast<std::uint16_t>(block);
  wish.sparse = switch_sparse();
  if (wish.exact && wish.sparse == SwitchSparse::pairs)
    refuse(
        "{}=pairs: pairs are summed as they come, and not exactly: expected 1 or auto beside "
        "TALWEG_SWITCH_EXACT",
        kSparseSetting);
  wish.floats_as = switch_format();
  if (wish.floats_as && wish.exact)
    refuse("{}={}: codes are rounded, and not exact: expected type beside TALWEG_SWITCH_EXACT",
           kFormatSetting, wire::name(*wish.floats_as));
  if (wish.floats_as && wish.sparse == SwitchSparse::pairs)
    refuse("{}={}: pairs have floats as they are: expected {}=1 or auto beside it", kFormatSetting,
           wire::name(*wish.floats_as), kSparseSetting);
  constexpr const char* kKeySetting = "TALWEG_SWITCH_KEY_FILE";
  const ResolvedSetting key = resolve(kKeySetting, options.switch_key_file);
  if (!key.value.empty()) wish.key = wire::secret_from_text(live::read_job_key(kKeySetting, key.value).text);
  // What stays on this host needs none, as what ranks say to each other there.
  wish.encrypted = wish.key && switch_of("TALWEG_ENCRYPT");
  const std::string or_none =
      found[0].by == kSetting ? "" : fmt::format(", or set {}={}", kSetting, kNoSwitch);
  for (const NamedSwitch& each : found) {
    const live::Endpoint address = endpoint_of(each);
    if (std::ranges::any_of(wish.at, [&](const SwitchWish::At& other) {
          return to_string(other.address) == to_string(address);
        }))
      refuse("{}: {} is named twice", each.by, to_string(address));
    if (!wish.key && !live::is_loopback(address.host))
      refuse("{}: a switch that is not on loopback has a key: name its file in {}{}", each.by, kKeySetting,
             or_none);
    wish.at.push_back({address, fmt::format("{} ({})", each.address, each.from)});
  }
  wish.of_rack = found.size() == 1 &&
                 (found[0].by == kSetting || (network != nullptr && !cluster::racks_of(*network).empty()));
  return wish;
}

}  // namespace talweg::group
