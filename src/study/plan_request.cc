#include "study/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/fail.h"
#include "base/units.h"
#include "forest/planner.h"
#include "formats/import.h"
#include "sim/bounded_sums.h"
#include "sim/topology_text.h"
#include "study/by_bounded_loss.h"
#include "study/perf_case.h"
#include "study/sizes.h"
#include "text/yaml_reader.h"

namespace talweg::study {
namespace {

// What --algo names, which has to serve the collective; empty: all.
std::vector<std::string> planners_asked_for(const std::string& text, const forest::Request& request) {
  std::vector<std::string> names;
  bool all = false;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    all = all || part == "all";
    if (part == "all") continue;
    if (part == sim::kBounded ? request.op != Collective::all_reduce
                              : !forest::find_planner(part).serves(request))
      refuse("--algo {}: {} does not serve {}", text, part, name(request.op));
    names.push_back(part);
  }
  if (all) names.clear();
  return names;
}

std::vector<std::int64_t> sizes_asked_for(const std::string& text, int factor, Collective op, int ranks) {
  std::vector<std::int64_t> sizes =
      parse_sizes(text, factor, static_cast<std::int64_t>(least_bytes(op, DataType::f32, ranks)));
  check_holds_element("--bytes", static_cast<std::size_t>(sizes.front()), op, DataType::f32, ranks);
  return op == Collective::barrier ? std::vector<std::int64_t>{0} : sizes;
}

// Options that were given and do nothing, one sentence each.
std::vector<std::string> idle_options(const PlanRequest& flags, Collective op) {
  const PlanRequest defaults;
  std::vector<std::string> notes;
  if (flags.bytes != defaults.bytes && op == Collective::barrier)
    notes.emplace_back("--bytes: a barrier moves no data");
  if (flags.factor != defaults.factor && op == Collective::barrier)
    notes.emplace_back("--factor: a barrier moves no data");
  else if (flags.factor != defaults.factor && !has_range(flags.bytes))
    notes.push_back("--factor: there is no range in --bytes " + flags.bytes);
  return notes;
}

std::string source_formats() {
  std::string names;
  for (const formats::Format format : formats::formats())
    names += (names.empty() ? "" : ",") + std::string(formats::name(format));
  return names;
}

}  // namespace

std::span<const Field<PlanRequest>> plan_fields() {
  using R = PlanRequest;
  static const std::string sources = source_formats();
  static const Field<R> kFields[] = {
      // clang-format off
      {.name = "cluster", .letters = ".", .member = &R::cluster, .help = "file that describes the network"},
      {.name = "topology", .letters = "", .member = &R::topology,
       .help = "or a generated one, as talweg simulate has it: star:hosts=16,rate=10G"},
      {.name = "from", .letters = "", .member = &R::from, .help = "format of CLUSTER (default: recognised)",
       .words = sources.c_str()},
      {.name = "op", .letters = "", .member = &R::op, .help = "the collective"},
      {.name = "root", .letters = "-r", .member = &R::root, .help = "rank, where the collective has one",
       .most = 1 << 20},
      {.name = "bytes", .letters = "-b", .member = &R::bytes,
       .help = "sizes: a list, or FIRST..LAST; a barrier has none"},
      {.name = "factor", .letters = "-f", .member = &R::factor, .help = "from size to size of a range",
       .least = 2, .most = 1 << 20},
      {.name = "algo", .letters = "", .member = &R::algo,
       .help = "these planners alone, with commas; -o writes the forest of one (default: all, and what a group "
               "takes); bounded: sums of which a part may be lost"},
      {.name = "servers", .letters = "", .member = &R::servers,
       .help = "of --algo bounded: the ranks that sum, with commas (default: all)"},
      {.name = "patience", .letters = "", .member = &R::patience,
       .help = "time for all predictions; what is not done by then is left out, and named"},
      // clang-format on
  };
  return kFields;
}

forest::Request PlanQuestion::largest() const {
  return request_of(request.op, request.root, network.workers(), request.sizes.back());
}

cluster::Cluster network_of(const std::string& file, const std::string& topology) {
  if (!file.empty() && !topology.empty())
    refuse("--topology {}: the file {} describes a network, too: expected only one of them", topology, file);
  if (file.empty() && topology.empty())
    refuse("expected a file of the network, or --topology such as leaf-spine:leaves=4,hosts=4,spines=4");
  return file.empty() ? sim::parse_topology(topology) : formats::load_any(file);
}

namespace {

// Of the format that is asked for.
void read_network(const PlanRequest& flags, PlanQuestion& planned) {
  if (flags.cluster.empty() || !flags.topology.empty()) {
    planned.network = network_of(flags.cluster, flags.topology);
    planned.source = {flags.topology, "topology"};
    if (!flags.from.empty()) refuse("--from {}: --topology names no file", flags.from);
    return;
  }
  const std::string text = text::read_file(flags.cluster);
  if (flags.from.empty() && formats::has_key(text, "trees"))
    refuse("{}: expected a network, and this is a forest", flags.cluster);
  const auto format =
      flags.from.empty() ? formats::recognise(text, flags.cluster) : formats::parse_format(flags.from);
  planned.network = formats::import_text(format, text, flags.cluster);
  planned.source = {flags.cluster, formats::name(format)};
}

}  // namespace

PlanQuestion checked(const PlanRequest& flags) {
  PlanQuestion planned;
  read_network(flags, planned);
  const Collective op = collective_called(flags.op);
  check_root("--root", flags.root, op, planned.network.workers());
  planned.request.op = op;
  planned.request.root = flags.root;
  planned.request.sizes = sizes_asked_for(flags.bytes, flags.factor, op, planned.network.workers());
  planned.request.notes = idle_options(flags, op);
  planned.request.patience = static_cast<double>(parse_wait("--patience", flags.patience).value) * 1e-9;
  if (!flags.algo.empty()) planned.request.only = planners_asked_for(flags.algo, planned.largest());
  planned.request.servers = parse_servers(flags.servers, planned.network.workers());
  const bool bounded = std::ranges::count(planned.request.only, sim::kBounded) > 0;
  if (!bounded && !planned.request.servers.empty())
    planned.request.notes.emplace_back("--servers: only --algo bounded has servers");
  if (bounded)
    planned.request.notes.push_back(
        fmt::format("{}: sums of which a part may be lost, where none is; who makes "
                    "BoundedSums has them, and no group takes them by itself",
                    sim::kBounded));
  return planned;
}

}  // namespace talweg::study
