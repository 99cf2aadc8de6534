// htsim's fat trees (csg-htsim, FatTreeTopology): lines of a key and a number, first for all, then for each
// tier.
//
//   Nodes 32                  hosts
//   Tiers 2                   2: top-of-rack and spine switches; 3: top of rack, aggregation, core
//   Podsize 32                hosts that share their aggregation switches; all of them if there are 2 tiers
//   Tier 0                    of the switches of a tier, 0 next to the hosts:
//   Downlink_speed_Gbps 100     of each link down from them, both ways
//   Downlink_Latency_ns 1000    likewise
//   Switch_Latency_ns 0         to pass one of them; counted on the links that leave it
//   Radix_Down 8                links down from each
//   Radix_Up 2                  links up from each, not for the topmost
//   Bundle 1                    links down from each to the same switch, one after the other one tier below
//   Oversubscribed 4            what comes from below over what goes up; must agree with radices and speeds
//
// In three tiers aggregation switch j of a pod is joined to the cores j, j + A, j + 2 A, ..., where a pod has
// A.
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <sstream>

#include "formats/builder.h"
#include "formats/import.h"
#include "text/yaml_reader.h"

namespace talweg::formats {
namespace {

struct Value {
  double number = 0;
  int line = 0;
};

class HtsimImporter {
 public:
  HtsimImporter(const std::string& text, const std::string& origin) : builder_(origin) {
    text::require_utf8(text, origin);
    read(text);
  }

  Cluster build() {
    tiers_ = whole(0, "tiers", 2, 3);
    hosts_ = whole(0, "nodes", 1, static_cast<int>(Builder::kMostNodes));
    for (int tier = 0; tier < tiers_; ++tier) read_tier(tier);
    check_shape();
    add_nodes();
    connect();
    return builder_.finish();
  }

 private:
  struct Tier {
    double gbps = 0;
    double latency_ns = 0, switch_latency_ns = 0;
    int down = 0, up = 0, bundle = 1, oversubscribed = 1;
    int line = 0;
  };

  // Keys before the first tier belong to section 0, those of tier t to section t + 1.
  void read(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    int number = 0, section = 0;
    while (std::getline(lines, line)) {
      ++number;
      std::istringstream words(line);
      std::string key, value, rest;
      if (!(words >> key) || key[0] == '#') continue;
      for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      words >> value;
      const auto parsed = text::read_number(value);
      if (!parsed || *parsed < 0 || (words >> rest && rest[0] != '#'))
        builder_.fail(number, fmt::format("{}: expected one number, at least 0", key));
      if (key == "tier") {
        if (*parsed != 0 && *parsed != 1 && *parsed != 2) builder_.fail(number, "tier: expected 0, 1 or 2");
        section = static_cast<int>(*parsed) + 1;
      } else {
        check_key(key, section, number);
      }
      if (!values_.emplace(std::pair(section, key), Value{*parsed, number}).second)
        builder_.fail(number, fmt::format("{} is written twice: expected it once", key));
    }
    last_line_ = std::max(1, number);
  }

  void check_key(const std::string& key, int section, int line) const {
    static constexpr std::array kGlobal{"nodes", "tiers", "podsize"};
    static constexpr std::array kTier{
        "downlink_speed_gbps", "downlink_latency_ns", "switch_latency_ns", "radix_down", "radix_up", "bundle",
        "oversubscribed"};
    const auto among = [&](const auto& keys) {
      for (const char* known : keys)
        if (key == known) return true;
      return false;
    };
    if (section == 0 ? among(kGlobal) : among(kTier)) return;
    builder_.fail(line,
                  section == 0
                      ? fmt::format("{}: expected Nodes, Tiers, Podsize or Tier", key)
                      : fmt::format("{}: expected Downlink_speed_Gbps, Downlink_Latency_ns, "
                                    "Switch_Latency_ns, Radix_Down, Radix_Up, Bundle, Oversubscribed or Tier",
                                    key));
  }

  std::optional<Value> find(int section, const char* key) const {
    const auto found = values_.find({section, key});
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  Value required(int section, const char* key) const {
    const auto value = find(section, key);
    if (!value) builder_.fail(section == 0 ? last_line_ : tier_line(section - 1), missing(section, key));
    return *value;
  }

  static std::string missing(int section, const char* key) {
    return section == 0 ? fmt::format("expected a line \"{}\"", key)
                        : fmt::format("expected a line \"{}\" for tier {}", key, section - 1);
  }

  int tier_line(int tier) const {
    const auto value = find(tier + 1, "tier");
    return value ? value->line : last_line_;
  }

  int whole(int section, const char* key, int least, int most, std::optional<int> otherwise = {}) const {
    if (otherwise && !find(section, key)) return *otherwise;
    const Value value = required(section, key);
    if (value.number < least || value.number > most || value.number != static_cast<int>(value.number))
      builder_.fail(value.line, fmt::format("{}: expected an integer from {} to {}", key, least, most));
    return static_cast<int>(value.number);
  }

  double time(int tier, const char* key, bool needed) const {
    constexpr double kMostNanoseconds = 1e15;  // eleven days; keeps sums of latencies in their range
    if (!needed && !find(tier + 1, key)) return 0;
    const Value value = required(tier + 1, key);
    if (value.number > kMostNanoseconds) builder_.fail(value.line, fmt::format("{}: too long", key));
    return value.number;
  }

  void read_tier(int index) {
    constexpr int kMostRadix = 1 << 16;
    const int section = index + 1;
    Tier& tier = tier_[static_cast<std::size_t>(index)];
    tier.line = tier_line(index);
    tier.gbps = required(section, "downlink_speed_gbps").number;
    if (tier.gbps <= 0 || tier.gbps > 1e9)
      builder_.fail(required(section, "downlink_speed_gbps").line, "downlink_speed_gbps: expected 1 to 1e9");
    tier.latency_ns = time(index, "downlink_latency_ns", true);
    tier.switch_latency_ns = time(index, "switch_latency_ns", false);
    tier.down = whole(section, "radix_down", 1, kMostRadix);
    tier.bundle = whole(section, "bundle", 1, kMostRadix, 1);
    tier.oversubscribed = whole(section, "oversubscribed", 1, kMostRadix, 1);
    if (index + 1 < tiers_)
      tier.up = whole(section, "radix_up", 1, kMostRadix);
    else if (const auto up = find(section, "radix_up"))
      builder_.fail(up->line, "radix_up: the topmost switches have no links up");
  }

  // As many switches as the radices ask for, and every port in use.
  void check_shape() {
    const auto& [tor, agg, core] = tier_;
    const int podsize = whole(0, "podsize", 1, hosts_);
    require(0, hosts_ % podsize == 0, fmt::format("{} nodes are not whole pods of {}", hosts_, podsize));
    pods_ = hosts_ / podsize;
    require(0, tiers_ == 3 || pods_ == 1, "two tiers make one pod: expected a podsize of all nodes");
    require(1, tor.bundle == 1, "a host has one link: expected a bundle of 1");
    require(1, podsize % tor.down == 0,
            fmt::format("a pod of {} hosts is not whole switches of {}", podsize, tor.down));
    tors_ = podsize / tor.down;
    require(1, tor.up % agg.bundle == 0,
            fmt::format("radix_up {} is not whole bundles of {}", tor.up, agg.bundle));
    aggs_ = tor.up / agg.bundle;
    require_radix(1, agg.down, static_cast<std::int64_t>(tors_) * agg.bundle, "for the switches below");
    require_oversubscription(0);
    if (tiers_ == 2) return;
    require(2, agg.up % core.bundle == 0,
            fmt::format("radix_up {} is not whole bundles of {}", agg.up, core.bundle));
    cores_per_agg_ = agg.up / core.bundle;
    require_radix(2, core.down, static_cast<std::int64_t>(pods_) * core.bundle, "for the pods");
    require_oversubscription(1);
  }

  void require(int section, bool holds, const std::string& text) const {
    if (!holds) builder_.fail(section == 0 ? required(0, "podsize").line : tier_line(section - 1), text);
  }

  void require_radix(int tier, int written, std::int64_t needed, const char* what) const {
    require(tier + 1, written == needed, fmt::format("radix_down {}: expected {} {}", written, needed, what));
  }

  void require_oversubscription(int tier) const {
    const Tier& low = tier_[static_cast<std::size_t>(tier)];
    const Tier& high = tier_[static_cast<std::size_t>(tier) + 1];
    require(tier + 1, low.down * low.gbps == low.oversubscribed * (low.up * high.gbps),
            fmt::format("oversubscribed {}: {} x {} Gbit/s down and {} x {} Gbit/s up do not agree with that",
                        low.oversubscribed, low.down, low.gbps, low.up, high.gbps));
  }

  void add_nodes() {
    for (int i = 0; i < hosts_; ++i)
      builder_.add({.name = fmt::format("host{}", i)}, required(0, "nodes").line);
    first_tor_ = add_switches("tor", pods_ * tors_, 0);
    first_agg_ = add_switches(tiers_ == 2 ? "spine" : "agg", static_cast<std::int64_t>(pods_) * aggs_, 1);
    if (tiers_ == 3) first_core_ = add_switches("core", static_cast<std::int64_t>(aggs_) * cores_per_agg_, 2);
  }

  int add_switches(const char* name, std::int64_t count, int tier) {
    int first = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const int node = builder_.add({.name = fmt::format("{}{}", name, i), .kind = NodeKind::switch_},
                                    tier_[static_cast<std::size_t>(tier)].line);
      if (i == 0) first = node;
    }
    return first;
  }

  // `high` is a switch of tier `tier`; `low` is a host or a switch one tier below.
  void connect_down(int high, int low, int tier) {
    const Tier& t = tier_[static_cast<std::size_t>(tier)];
    const double below = tier == 0 ? 0 : tier_[static_cast<std::size_t>(tier) - 1].switch_latency_ns;
    const Bandwidth capacity{t.gbps * 1e9 * t.bundle};
    const auto nanoseconds = [](double value) { return Nanoseconds{static_cast<std::int64_t>(value)}; };
    builder_.connect_one_way(low, high, capacity, nanoseconds(t.latency_ns + below), t.line);
    builder_.connect_one_way(high, low, capacity, nanoseconds(t.latency_ns + t.switch_latency_ns), t.line);
  }

  void connect() {
    for (int host = 0; host < hosts_; ++host) connect_down(first_tor_ + host / tier_[0].down, host, 0);
    for (int pod = 0; pod < pods_; ++pod) {
      for (int j = 0; j < aggs_; ++j) {
        const int agg = first_agg_ + pod * aggs_ + j;
        for (int t = 0; t < tors_; ++t) connect_down(agg, first_tor_ + pod * tors_ + t, 1);
        for (int c = 0; tiers_ == 3 && c < cores_per_agg_; ++c)
          connect_down(first_core_ + j + aggs_ * c, agg, 2);
      }
    }
  }

  Builder builder_;
  std::map<std::pair<int, std::string>, Value> values_;
  int last_line_ = 1;
  int tiers_ = 0, hosts_ = 0, pods_ = 0;
  int tors_ = 0, aggs_ = 0;  // of each pod
  int cores_per_agg_ = 0;
  int first_tor_ = 0, first_agg_ = 0, first_core_ = 0;
  std::array<Tier, 3> tier_;
};

}  // namespace

Cluster import_htsim(const std::string& text, const std::string& origin) {
  return HtsimImporter(text, origin).build();
}

}  // namespace talweg::formats
