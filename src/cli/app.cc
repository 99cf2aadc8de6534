#include "cli/app.h"

#include <string>

#include "cli/lab.h"
#include "cli/version.h"

namespace talweg::cli {
namespace {

constexpr const char* kProgramExamples = R"(
Examples:
  talweg run -n 4 -- python train.py
  talweg run -n 4 -- talweg perf all_reduce -b 4K -e 64M -f 4
  talweg lab run cluster.yaml -- talweg perf all_reduce
  talweg plan cluster.yaml --html plan.html
  talweg simulate cluster.yaml --bytes 1M..64M
  talweg info

"talweg <subcommand> --help" has more.)";

}  // namespace

std::unique_ptr<CLI::App> make_app(Action* action) {
  auto app = std::make_unique<CLI::App>(
      "Talweg: collectives for distributed training over the network that is there", "talweg");
  app->set_version_flag("--version", std::string("talweg ") + kVersion);
  app->footer(kProgramExamples);
  app->require_subcommand(1);
  add_run(*app, action);
  add_perf(*app, action);
  add_probe(*app, action);
  add_info(*app, action);
  add_doctor(*app, action);
  add_lab(*app, action);
  add_plan(*app, action);
  add_convert(*app, action);
  add_simulate(*app, action);
  return app;
}

}  // namespace talweg::cli
