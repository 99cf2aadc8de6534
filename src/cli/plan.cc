// talweg plan: how fast a collective can be on a network, what each planner would take, and what the trees
// look like.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <utility>

#include "base/at.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/number_checks.h"
#include "cli/output.h"
#include "cli/perf_case.h"
#include "cli/plan_page.h"
#include "cli/plan_report.h"
#include "cli/plan_study.h"
#include "forest/planner.h"
#include "forest/verify.h"
#include "formats/import.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::cli {
namespace {

constexpr const char* kPlanExamples = R"(
CLUSTER is a network in any format that "talweg convert" reads. Sizes are those of the whole vector, rounded down to
whole elements; a range of them begins where each rank's part has an element. -o and the trees of --html are for the
largest. The format that -o writes is the ending of its name: .yaml, .json, .dot (GraphViz) or .xml (a program for
MSCCL and RCCL).

Times are predicted for networks of up to 2500 nodes. For larger ones there is a bound alone, that of the narrowest
worker, and --algo and -o are refused; "talweg convert --collective" plans on any. Among more than 256 ranks, packed is
tried if --algo names it. Where a planner that might win was not done within --patience, no * marks a choice, a note says
which planners are missing, and -o writes no forest.

Examples:
  talweg plan cluster.yaml
  talweg plan cluster.yaml --op broadcast --root 2 --bytes 64K,1M..64M
  talweg plan cluster.yaml --algo ring,star,packed           # these alone, side by side
  talweg plan cluster.yaml --html plan.html                  # the network, its loads, the trees, the rates
  talweg plan topo.xml --bytes 64M -o forest.yaml            # the forest that a group would take
  talweg plan topo.xml --bytes 64M --algo ring -o ring.xml)";

struct PlanFlags {
  std::string in;
  std::string from;
  std::string op = "all_reduce";
  int root = 0;
  std::string sizes = "4K..1G";
  std::string algorithms;
  std::string out, html, json;
  std::string patience = "20s";
};

struct Planned {
  cluster::Cluster network;
  NetworkSource source;
  StudyRequest request;
};

forest::Request largest_request(const Planned& planned) {
  return request_of(planned.request.op, planned.request.root, planned.network.workers(),
                    planned.request.sizes.back());
}

// What --algo names, which has to serve the collective; empty: all.
std::vector<std::string> planners_asked_for(const std::string& text, const forest::Request& request) {
  std::vector<std::string> names;
  bool all = false;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    all = all || part == "all";
    if (part == "all") continue;
    if (!forest::find_planner(part).serves(request))
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--algo {}: {} does not serve {}", text, part, name(request.op)));
    names.push_back(part);
  }
  if (all) names.clear();
  return names;
}

std::vector<std::int64_t> sizes_asked_for(const std::string& text, Collective op, int ranks) {
  std::vector<std::int64_t> sizes =
      parse_sizes(text, static_cast<std::int64_t>(least_bytes(op, DataType::f32, ranks)));
  check_holds_element("--bytes", static_cast<std::size_t>(sizes.front()), op, DataType::f32, ranks);
  return op == Collective::barrier ? std::vector<std::int64_t>{0} : sizes;
}

Planned read(const PlanFlags& flags) {
  Planned planned;
  const std::string text = text::read_file(flags.in);
  if (flags.from.empty() && formats::has_key(text, "trees"))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: expected a network, and this is a forest", flags.in));
  const auto format =
      flags.from.empty() ? formats::recognise(text, flags.in) : formats::parse_format(flags.from);
  planned.network = formats::import_text(format, text, flags.in);
  planned.source = {flags.in, name(format)};

  const auto op = parse_collective(flags.op);
  if (!op) throw Error(ErrorCode::invalid_argument, fmt::format("no collective is called \"{}\"", flags.op));
  if (flags.root != 0 && !has_root(*op))
    throw Error(ErrorCode::invalid_argument, fmt::format("--root {}: {} has no root", flags.root, flags.op));
  if (flags.root < 0 || flags.root >= planned.network.workers())
    throw Error(ErrorCode::invalid_argument, fmt::format("--root {}: {} has workers 0 to {}", flags.root,
                                                         flags.in, planned.network.workers() - 1));
  planned.request.op = *op;
  planned.request.root = flags.root;
  planned.request.sizes = sizes_asked_for(flags.sizes, *op, planned.network.workers());
  planned.request.patience = static_cast<double>(parse_wait("--patience", flags.patience).value) * 1e-9;
  if (!flags.algorithms.empty())
    planned.request.only = planners_asked_for(flags.algorithms, largest_request(planned));
  return planned;
}

// Before any work: what -o cannot write at all, and what would take more memory than there is.
void check_forest(const PlanFlags& flags, const Planned& planned) {
  if (format_of_ending(flags.out).empty())
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("-o {}: which format? give a name that ends in .yaml, .json, .dot or .xml", flags.out));
  if (planned.network.nodes.size() > kMostNodesToPlan)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("-o {}: forests are planned for networks of up to {} nodes, and this one has {}; "
                            "talweg convert --collective has no limit",
                            flags.out, kMostNodesToPlan, planned.network.nodes.size()));
  const auto& only = planned.request.only;
  if (only.size() > 1)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("-o {}: it takes one forest, and --algo names {} planners", flags.out, only.size()));
  if (only.size() == 1 && !forest::find_planner(only[0]).suits(largest_request(planned)))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--algo {}: it is not meant for {}; give smaller --bytes", only[0],
                            to_string(Bytes{planned.request.sizes.back()})));
}

// By the planner that is marked.
void write_forest(const PlanFlags& flags, const Planned& planned, const Study& found) {
  const StudyRow& row = found.rows.back();
  if (row.taken < 0)
    throw Error(ErrorCode::timeout,
                fmt::format("-o {}: not written, as it is not known by whom to plan; give more --patience{}",
                            flags.out, found.all_planners ? ", or name a planner (--algo)" : ""));
  const forest::Forest forest =
      plan_for(planned.network, largest_request(planned), found.planners[at(row.taken)]);
  forest::verify(forest, &planned.network);
  write_text(flags.out, forest_text(forest, format_of_ending(flags.out)));
}

// Those that were named, and have no time at any size, were asked for in vain.
void check_found(const PlanFlags& flags, const Study& found) {
  if (found.all_planners) return;
  for (const StudyRow& row : found.rows)
    for (const Prediction& prediction : row.predictions)
      if (prediction.seconds) return;
  const Prediction& last = found.rows.back().predictions.front();
  throw Error(last.not_done ? ErrorCode::timeout : ErrorCode::unsupported,
              fmt::format("--algo {}: no time is predicted: {}", flags.algorithms, last.reason));
}

int plan(const PlanFlags& flags) {
  const Planned planned = read(flags);
  if (!flags.out.empty()) check_forest(flags, planned);
  if (flags.json == "-" && flags.html == "-")
    throw Error(ErrorCode::invalid_argument, "--json - and --html -: only one can have standard output");
  check_outputs({flags.json, flags.out, flags.html}, {flags.in});
  for (const std::string& path : {flags.json, flags.out, flags.html})
    if (!path.empty()) check_writable(path);
  const Study found = study(planned.network, planned.request);
  fmt::print(flags.json == "-" || flags.html == "-" ? stderr : stdout, "{}",
             to_text(planned.network, planned.source, found));
  if (!flags.json.empty())
    write_text(flags.json, to_json(planned.network, planned.source, found).dump(2) + "\n");
  if (!flags.html.empty()) write_text(flags.html, plan_page(planned.network, planned.source, found));
  check_found(flags, found);
  if (!flags.out.empty()) write_forest(flags, planned, found);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action* action) {
  auto flags = std::make_shared<PlanFlags>();
  auto* sub =
      app.add_subcommand("plan", "how fast a collective can be on a network, and what each planner takes");
  sub->footer(kPlanExamples);
  sub->add_option("cluster", flags->in, "file that describes the network")->required();
  std::vector<std::string> sources;
  for (const formats::Format format : formats::formats()) sources.emplace_back(name(format));
  sub->add_option("--from", flags->from, "format of CLUSTER (default: recognised)")
      ->check(CLI::IsMember(sources));
  sub->add_option("--op", flags->op, "the collective")->capture_default_str();
  sub->add_option("--root", flags->root, "rank, where the collective has one")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str();
  sub->add_option("--bytes", flags->sizes, "sizes: a list, or FIRST..LAST in steps of 4; a barrier has none")
      ->capture_default_str();
  sub->add_option(
      "--algo", flags->algorithms,
      "these planners alone, with commas; -o writes the forest of one (default: all, as far as they "
      "are quick, and what a group takes)");
  sub->add_option("-o,--out", flags->out, "write the forest of the largest size into this file");
  sub->add_option("--html", flags->html, "write a page of pictures into this file");
  sub->add_option("-J,--json", flags->json,
                  "as JSON, into this file; - for standard output, the table then goes to standard error");
  sub->add_option("--patience", flags->patience,
                  "time for all predictions; what is not done by then is left out, and named")
      ->capture_default_str();
  sub->callback([flags, action] { *action = [flags] { return plan(*flags); }; });
}

}  // namespace talweg::cli
