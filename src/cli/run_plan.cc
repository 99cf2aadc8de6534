#include "cli/run_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/fail.h"
#include "text/escape.h"

namespace talweg::cli {
namespace {

// A remote shell passes no signals on. What the far side does notice is the end of its standard input, which
// comes when the remote-shell client here ends for whatever reason; then the program is stopped over there.
// The job's key comes in that way, too: a command line is for everybody to see.
constexpr const char* kRemoteGuard =
    "IFS= read -r TALWEG_KEY; export TALWEG_KEY; exec 3<&0; \"$@\" </dev/null & p=$!; "
    "(cat <&3; kill -TERM $p; sleep 3; kill -KILL $p) >/dev/null 2>&1 & w=$!; "
    "exec 3<&-; wait $p; s=$?; kill $w 2>/dev/null; exit $s";

std::string this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "127.0.0.1";
}

std::vector<std::string> remote_command(const RunRequest& request, const RunPlan::Rank& rank,
                                        const std::vector<std::string>& program) {
  std::vector<std::string> command;
  std::istringstream words(request.remote_shell);
  for (std::string word; words >> word;) command.push_back(word);
  std::string line = fmt::format("cd {} && env", text::shell_quoted(request.directory));
  for (const auto& pair : request.pass) line += " " + text::shell_quoted(pair);
  for (const auto& [name, value] : rank.environment) line += " " + text::shell_quoted(name + "=" + value);
  line += fmt::format(" sh -c {} sh", text::shell_quoted(kRemoteGuard));
  for (const auto& word : program) line += " " + text::shell_quoted(word);
  command.push_back(rank.host);
  command.push_back(line);
  return command;
}

std::string master_address(const RunRequest& request, const std::vector<HostSlots>& hosts) {
  if (!request.master_address.empty()) return request.master_address;
  const bool all_local = std::ranges::all_of(hosts, [](auto& h) { return is_local(h.host); });
  if (all_local) return "127.0.0.1";
  return is_local(hosts.front().host) ? this_host() : hosts.front().host;
}

}  // namespace

bool is_local(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1";
}

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    HostSlots host{entry.substr(0, entry.rfind(':')), 1};
    bool good = !host.host.empty() && host.host.front() != '-';
    if (const auto colon = entry.rfind(':'); colon != std::string::npos) {
      const char* end = entry.data() + entry.size();
      const auto parsed = std::from_chars(entry.data() + colon + 1, end, host.slots);
      good = good && parsed.ec == std::errc{} && parsed.ptr == end && host.slots > 0;
    }
    if (!good) refuse("--hosts: expected host or host:slots, got \"{}\"", entry);
    hosts.push_back(host);
  }
  if (hosts.empty()) refuse("--hosts: expected host:slots,host:slots,...");
  return hosts;
}

RunPlan plan_run(const RunRequest& request) {
  if (request.program.empty()) refuse("no program given: talweg run -n 4 -- program arguments");
  if (request.ranks <= 0 && request.hosts.empty()) refuse("how many ranks? give -n or --hosts");
  auto hosts = request.hosts;
  if (hosts.empty()) hosts = {{"localhost", request.ranks}};
  int slots = 0;
  for (const auto& host : hosts) slots += host.slots;
  const int size = request.ranks > 0 ? request.ranks : slots;
  if (size > slots) refuse("-n {} ranks do not fit into the {} slots of --hosts", size, slots);

  RunPlan plan;
  const std::string master = master_address(request, hosts);
  const auto add = [&](RunPlan::Rank process, const std::vector<std::string>& program) {
    process.environment.insert(process.environment.end(),
                               {{"WORLD_SIZE", std::to_string(size)},
                                {"MASTER_ADDR", master},
                                {"MASTER_PORT", std::to_string(request.master_port)}});
    if (!request.aggregators.empty())
      process.environment.emplace_back("TALWEG_AGGREGATORS_AT",
                                       fmt::format("tcp://{}:{}", master, request.aggregator_port));
    if (!process.remote)
      process.environment.insert(process.environment.end(),
                                 {{"TALWEG_KEY", request.key}, {"TALWEG_KEY_FILE", ""}});
    process.command = process.remote ? remote_command(request, process, program) : program;
    plan.ranks.push_back(std::move(process));
  };
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int first = static_cast<int>(plan.ranks.size());
    const int here = std::min(hosts[h].slots, size - first);
    for (int local = 0; local < here; ++local) {
      RunPlan::Rank rank;
      rank.host = hosts[h].host;
      rank.remote = !is_local(rank.host);
      rank.environment = {{"RANK", std::to_string(first + local)},
                          {"LOCAL_RANK", std::to_string(local)},
                          {"LOCAL_WORLD_SIZE", std::to_string(here)},
                          {"GROUP_RANK", std::to_string(h)}};
      add(std::move(rank), request.program);
    }
  }
  // On one machine there are no other hosts to be.
  const bool all_here = std::ranges::all_of(hosts, [](auto& h) { return is_local(h.host); });
  for (const std::string& node : request.aggregators) {
    RunPlan::Rank process;
    process.host = all_here ? "localhost" : node;
    process.remote = !all_here;
    process.aggregator = node;
    add(std::move(process), {all_here ? request.talweg : "talweg", "aggregator", "--again", "--name", node});
  }
  return plan;
}

}  // namespace talweg::cli
