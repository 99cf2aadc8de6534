#include "cli/app.h"

#include <string>

#include "study/version.h"

namespace talweg::cli {

using AddCommand = void(CLI::App& app, Action* action);
AddCommand add_run, add_aggregator, add_switch, add_perf, add_probe, add_info, add_doctor, add_lab, add_plan,
    add_predict, add_convert, add_simulate, add_compare;

namespace {

// In the order of --help.
constexpr AddCommand* kCommands[] = {add_run,     add_aggregator, add_switch, add_perf, add_probe,
                                     add_info,    add_doctor,     add_lab,    add_plan, add_predict,
                                     add_convert, add_simulate,   add_compare};

constexpr const char* kProgramExamples = R"(
Examples:
  talweg run -n 4 -- python train.py
  talweg run -n 4 -- talweg perf all_reduce -b 4K -e 64M -f 4
  talweg lab run cluster.yaml -- talweg perf all_reduce
  talweg plan cluster.yaml --html plan.html
  talweg predict job.yaml --cluster cluster.yaml
  talweg simulate cluster.yaml --bytes 1M..64M
  talweg info

"talweg <subcommand> --help" has more.)";

}  // namespace

std::unique_ptr<CLI::App> make_app(Action* action) {
  auto app = std::make_unique<CLI::App>(
      "Talweg: collectives for distributed training over the network that is there", "talweg");
  app->set_version_flag("--version", std::string("talweg ") + study::kVersion);
  app->footer(kProgramExamples);
  app->require_subcommand(1);
  for (const auto add : kCommands) add(*app, action);
  return app;
}

}  // namespace talweg::cli
