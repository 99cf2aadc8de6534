// talweg convert: networks and forests from one file format into another.

#include <memory>
#include <vector>

#include "base/fail.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "forest/planner.h"
#include "forest/verify.h"
#include "formats/forest_text.h"
#include "formats/graphviz.h"
#include "formats/import.h"
#include "study/perf_case.h"
#include "study/plan_study.h"
#include "text/output_file.h"
#include "text/yaml_reader.h"

namespace talweg::cli {
namespace {

constexpr const char* kConvertExamples = R"(
Reads networks: talweg (YAML, JSON), nccl, taccl, adapcc, astra_sim, htsim; and forests.
Writes both: yaml, json, dot (GraphViz); and forests: msccl (XML for MSCCL and RCCL).
The format to write is the ending of OUT if there is no --to: .yaml, .json, .dot, .xml. OUT - is standard output;
it cannot be the file IN.

Examples:
  talweg convert topo.xml cluster.yaml                      # NCCL's, recognised by what it says
  talweg convert leaf_spine.topo network.dot
  talweg convert topo.xml algo.xml --op all_reduce  # plan on it, write the forest for MSCCL
  talweg convert forest.yaml algo.xml)";

struct ConvertFlags {
  std::string in, out;
  std::string from, to;
  std::string op;
  std::string bytes;
  int root = 0;
  std::string algo;
  std::string needs_op;  // the first option given that says nothing without one
};

std::string target_format(const ConvertFlags& flags) {
  std::string format = flags.to.empty() ? formats::format_of_ending(flags.out) : flags.to;
  if (!format.empty()) return format;
  refuse("{}: which format? give --to yaml, json, dot or msccl, or a name that ends so", flags.out);
}

forest::Forest plan(const ConvertFlags& flags, const cluster::Cluster& network) {
  const Collective op = study::collective_called(flags.op);
  const std::int64_t bytes = parse_bytes(flags.bytes.empty() ? "64M" : flags.bytes).value;
  study::check_root("--root", flags.root, op, network.workers());
  study::check_holds_element("--bytes", static_cast<std::size_t>(bytes), op, DataType::f32,
                             network.workers());
  const forest::Request request = study::request_of(op, flags.root, network.workers(), bytes);
  return flags.algo.empty() ? forest::plan_best(request, network)
                            : forest::find_planner(flags.algo).plan(request, network);
}

std::string network_text(const cluster::Cluster& network, const std::string& format) {
  if (format == "yaml") return cluster::to_yaml(network);
  if (format == "json") return cluster::to_json(network);
  if (format == "dot") return formats::to_dot(network);
  refuse("--to msccl: this writes a forest, and the file is a network: give --op to plan one on it");
}

std::string converted(const ConvertFlags& flags) {
  const std::string format = target_format(flags);
  const std::string text = text::read_file(flags.in);
  // A forest's file looks like a network's, but for this key.
  if (flags.from == "forest" || (flags.from.empty() && formats::has_key(text, "trees"))) {
    if (!flags.op.empty() || !flags.needs_op.empty())
      refuse("{}: {} is a forest, planned already", flags.op.empty() ? flags.needs_op : "--op", flags.in);
    const forest::Forest forest = forest::parse_forest(text, flags.in);
    forest::verify(forest);
    return formats::forest_text(forest, format);
  }
  const auto from =
      flags.from.empty() ? formats::recognise(text, flags.in) : formats::parse_format(flags.from);
  const cluster::Cluster network = formats::import_text(from, text, flags.in);
  if (flags.op.empty() && !flags.needs_op.empty()) refuse("{}: it needs --op", flags.needs_op);
  return flags.op.empty() ? network_text(network, format)
                          : formats::forest_text(plan(flags, network), format);
}

int convert(const ConvertFlags& flags) {
  text::check_outputs({flags.out}, {flags.in});
  const text::OutputFile out("out", flags.out);
  out.write(converted(flags));
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Action* action) {
  auto flags = std::make_shared<ConvertFlags>();
  auto* sub = app.add_subcommand("convert", "networks and forests from one file format into another");
  sub->footer(kConvertExamples);
  sub->add_option("in", flags->in, "file to read")->required();
  sub->add_option("out", flags->out, "file to write; - for standard output, which needs --to")->required();
  std::vector<std::string> sources{"forest"};
  for (const formats::Format format : formats::formats()) sources.emplace_back(name(format));
  sub->add_option("--from", flags->from, "format of IN (default: recognised)")->check(CLI::IsMember(sources));
  sub->add_option("--to", flags->to, "format of OUT (default: by its ending)")
      ->check(CLI::IsMember(std::vector<std::string>{"yaml", "json", "dot", "msccl"}));
  sub->add_option("--op", flags->op, "plan this on the network and write the forest");
  sub->add_option("-b,--bytes", flags->bytes, "of the vector that is planned for (64M)");
  sub->add_option("--algo", flags->algo, "that plans (default: the one that is predicted to be fastest)");
  sub->add_option("-r,--root", flags->root, "rank, where the collective has one")
      ->check(whole_number(0, 1 << 20));
  sub->callback([flags, sub, action] {
    for (const char* name : {"--bytes", "--algo", "--root"})
      if (flags->needs_op.empty() && sub->count(name) > 0) flags->needs_op = name;
    *action = [flags] { return convert(*flags); };
  });
}

}  // namespace talweg::cli
