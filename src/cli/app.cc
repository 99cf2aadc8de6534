#include "cli/app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>

#include "study/version.h"
#include "text/table.h"

namespace talweg::cli {

using AddCommand = void(CLI::App& app, Action* action);
AddCommand add_run, add_aggregator, add_switch, add_perf, add_probe, add_fabric, add_info, add_doctor,
    add_lab, add_plan, add_predict, add_convert, add_simulate, add_compare;

namespace {

// In the order of --help.
constexpr AddCommand* kCommands[] = {add_run,     add_aggregator, add_switch,   add_perf,   add_probe,
                                     add_fabric,  add_info,       add_doctor,   add_lab,    add_plan,
                                     add_predict, add_convert,    add_simulate, add_compare};

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

// Lines of tables have at most 120 characters; those of --help, too.
class WrappedHelp : public CLI::Formatter {
 public:
  WrappedHelp() { column_width(kColumn); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return in_column(option->get_description());
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_display_name(true), in_column(command->get_description()),
                             kColumn);
    return out.str();
  }

 private:
  static constexpr int kColumn = 30;  // where descriptions begin

  // CLI11 indents what follows a new line.
  static std::string in_column(const std::string& description) {
    return fmt::format("{}", fmt::join(text::wrapped(description, text::kTableWidth - kColumn), "\n"));
  }
};

}  // namespace

std::unique_ptr<CLI::App> make_app(Action* action) {
  auto app = std::make_unique<CLI::App>(
      "Talweg: collectives for distributed training over the network that is there", "talweg");
  app->formatter(std::make_shared<WrappedHelp>());
  app->set_version_flag("--version", std::string("talweg ") + study::kVersion);
  app->footer(kProgramExamples);
  app->require_subcommand(1);
  for (const auto add : kCommands) add(*app, action);
  return app;
}

}  // namespace talweg::cli
