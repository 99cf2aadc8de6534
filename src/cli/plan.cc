// talweg plan: how fast a collective can be on a network, what each planner would take, and what the trees
// look like.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/at.h"
#include "base/fail.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "forest/planner.h"
#include "forest/verify.h"
#include "formats/forest_text.h"
#include "sim/bounded_sums.h"
#include "study/plan_page.h"
#include "study/plan_report.h"
#include "study/plan_request.h"
#include "study/progress.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

constexpr const char* kPlanExamples = R"(
CLUSTER is a network in any format that "talweg convert" reads. Sizes are those of the whole vector, rounded down to
whole elements; a range of them begins where each rank's part has an element. -o and the trees of --html are for the
largest. The format that -o writes is the ending of its name: .yaml, .json, .dot (GraphViz) or .xml (a program for
MSCCL and RCCL). Under limit stands what the plan would be quickest without: links, processors or latency.

Times are predicted for networks of up to 2500 nodes. For larger ones there is a bound alone, that of the narrowest
worker, and --algo and -o are refused; "talweg convert --op" plans on any. Where a planner that is predicted to be
quicker is not taken, or one is not planned since that would be too much work (--algo asks for it by name), a line below
the tables says why. Where a planner that might win was not done within --patience, no * marks a choice, a note says
which planners are missing, and -o writes no forest.

Examples:
  talweg plan cluster.yaml
  talweg plan cluster.yaml --op broadcast --root 2 --bytes 64K,1M..64M
  talweg plan cluster.yaml --algo ring,star,packed           # these alone, side by side
  talweg plan cluster.yaml --html plan.html                  # the network, its loads, the trees, the rates
  talweg plan topo.xml --bytes 64M -o forest.yaml            # the forest that a group would take
  talweg plan topo.xml --bytes 64M --algo ring -o ring.xml
  talweg plan --topology leaf-spine:leaves=4,hosts=8,spines=4,rate=10G,up=25G)";

using study::PlanQuestion;
using study::Study;
using text::OutputFile;

struct PlanOutputs {
  std::string out, html, json;
  bool wide = false;
};

// Before any work: what -o cannot write at all, and what would take more memory than there is.
void check_forest(const std::string& out, const PlanQuestion& planned) {
  if (formats::format_of_ending(out).empty())
    refuse("-o {}: which format? give a name that ends in .yaml, .json, .dot or .xml", out);
  if (planned.network.nodes.size() > study::kMostNodesToPlan)
    refuse(
        "-o {}: forests are planned for networks of up to {} nodes, and this one has {}; "
        "talweg convert --op has no limit",
        out, study::kMostNodesToPlan, planned.network.nodes.size());
  const auto& only = planned.request.only;
  if (only.size() > 1) refuse("-o {}: it takes one forest, and --algo names {} planners", out, only.size());
  if (only.size() == 1 && only[0] == sim::kBounded)
    refuse(
        "-o {}: sums of which a part may be lost follow no forest; the nearest one is of --algo sharded_star",
        out);
  if (only.size() == 1 && !forest::find_planner(only[0]).suits(planned.largest()))
    refuse("--algo {}: it is not meant for {}; give smaller --bytes", only[0],
           to_string(Bytes{planned.request.sizes.back()}));
}

// By the planner that is marked.
void write_forest(const OutputFile& file, const std::string& path, const PlanQuestion& planned,
                  const Study& found) {
  const study::StudyRow& row = found.rows.back();
  if (row.taken < 0)
    throw_error(ErrorCode::timeout,
                "-o {}: not written, as it is not known by whom to plan; give more --patience{}", path,
                found.all_planners ? ", or name a planner (--algo)" : "");
  const forest::Forest forest =
      study::plan_for(planned.network, planned.largest(), found.planners[at(row.taken)]);
  forest::verify(forest, &planned.network);
  file.write(formats::forest_text(forest, formats::format_of_ending(path)));
}

// Those that were named, and have no time at any size, were asked for in vain.
void check_found(const std::string& algorithms, const Study& found) {
  if (found.all_planners) return;
  for (const study::StudyRow& row : found.rows)
    for (const study::Prediction& prediction : row.predictions)
      if (prediction.seconds) return;
  const study::Prediction& last = found.rows.back().predictions.front();
  throw_error(last.not_done ? ErrorCode::timeout : ErrorCode::unsupported,
              "--algo {}: no time is predicted: {}", algorithms, last.reason);
}

// On a terminal it says after a second how far it is.
Study studied(const PlanQuestion& planned) {
  study::ProgressLine line(std::chrono::seconds(1), std::nullopt);
  return study_plans(planned.network, planned.request, [&](const study::StudyProgress& progress) {
    if (line.due())
      line.say(fmt::format("talweg plan: {}; {} of at most {}", to_text(progress),
                           study::wait_text(line.seconds()), study::wait_text(planned.request.patience)));
  });
}

int plan(const study::PlanRequest& request, const PlanOutputs& outputs) {
  const PlanQuestion planned = checked(request);
  if (!outputs.out.empty()) check_forest(outputs.out, planned);
  if (outputs.json == "-" && outputs.html == "-")
    refuse("--json - and --html -: only one can have standard output");
  text::check_outputs({outputs.json, outputs.out, outputs.html}, {request.cluster});
  const OutputFile json("--json", outputs.json), out("-o", outputs.out), html("--html", outputs.html);
  const Study found = studied(planned);
  std::fputs(to_text(planned.network, planned.source, found, outputs.wide).c_str(),
             json.is_standard_output() || html.is_standard_output() ? stderr : stdout);
  if (json.wanted()) json.write(text::json_document(to_json(planned.network, planned.source, found)));
  if (html.wanted()) html.write(plan_page(planned.network, planned.source, found));
  check_found(request.algo, found);
  if (out.wanted()) write_forest(out, outputs.out, planned, found);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action* action) {
  auto request = std::make_shared<study::PlanRequest>();
  auto outputs = std::make_shared<PlanOutputs>();
  auto* sub =
      app.add_subcommand("plan", "how fast a collective can be on a network, and what each planner takes");
  sub->footer(kPlanExamples);
  add_fields(*sub, study::plan_fields(), request);
  sub->add_option("-o,--out", outputs->out, "write the forest of the largest size into this file");
  sub->add_option("--html", outputs->html, "write a page of pictures into this file");
  sub->add_option("-J,--json", outputs->json,
                  "as JSON, into this file; - for standard output, the table then goes to standard error");
  add_wide(*sub, outputs->wide);
  sub->callback([=] { *action = [=] { return plan(*request, *outputs); }; });
}

}  // namespace talweg::cli
