// talweg aggregator: sums for the ranks of a group, as a node of their network that is none of them.
#include "group/aggregator.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/units.h"
#include "cli/command.h"

namespace talweg::cli {
namespace {

constexpr const char* kAggregatorExamples = R"(
Examples:
  talweg aggregator --name agg0                  # beside the ranks, with their MASTER_ADDR, MASTER_PORT and TALWEG_KEY
  talweg aggregator --name agg0 --rendezvous tcp://node0:29500 --timeout 600s

The name is that of a node in the ranks' cluster file that aggregates. It is to be there when the ranks meet: a group
plans without those that are late. It ends when the last rank has left. "talweg run" and "talweg lab run" start one
for each such node. Ranks under torchrun look for it if they are told where: TALWEG_AGGREGATORS_AT=tcp://host:port and
TALWEG_KEY, the same for all of them and for it, with a free port on the host of rank 0.)";

}  // namespace

void add_aggregator(CLI::App& app, Action* action) {
  struct Flags {
    group::AggregatorOptions options;
    std::string wait = "3600s";
    bool again = false;
  };
  auto flags = std::make_shared<Flags>();
  auto* sub = app.add_subcommand("aggregator", "sum for the ranks of a group, on a node that has none");
  sub->footer(kAggregatorExamples);
  sub->add_option("--name", flags->options.name, "of the node in the ranks' cluster file")->required();
  sub->add_option("--rendezvous", flags->options.rendezvous,
                  "tcp://host:port or file:/path (default: as for ranks, from the environment)");
  sub->add_option("--group", flags->options.prefix, "the group's prefix in the store (default: none)");
  sub->add_option("--interface", flags->options.interface, "as TALWEG_SOCKET_IFNAME");
  sub->add_option("-T,--timeout", flags->wait, "for a group to form")->capture_default_str();
  sub->add_flag("--again", flags->again, "then wait for the next group, for ever");
  sub->callback([flags, action] {
    flags->options.timeout =
        std::chrono::milliseconds(parse_wait("--timeout", flags->wait).value / 1'000'000);
    *action = [flags] {
      constexpr std::chrono::hours kForEver(24 * 365 * 30);
      do {
        group::serve_group(flags->options);
        flags->options.timeout = kForEver;
      } while (flags->again);
      return 0;
    };
  });
}

}  // namespace talweg::cli
