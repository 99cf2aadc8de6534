// talweg run: starts the ranks of a group, here or over ssh, and stays until the last one has ended.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>

#include "base/fail.h"
#include "base/settings.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "cli/run_plan.h"
#include "fabric/launcher.h"
#include "formats/import.h"
#include "live/join/job_key.h"
#include "wire/key.h"

namespace talweg::cli {
namespace {

constexpr const char* kRunExamples = R"(
Examples:
  talweg run -n 4 -- python train.py
  talweg run -n 4 -- talweg perf all_reduce -b 4K -e 64M -f 4
  talweg run --hosts node0:2,node1:2 -- ./train --epochs 3
  talweg run -n 2 --timeout 60s --no-tag-output -- ./program

Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
environment, and in TALWEG_KEY the job's key: yours, if TALWEG_KEY or TALWEG_KEY_FILE is set here, else a new
one. Its lines are prefixed with its rank. When one fails the others are stopped, and the exit code is
that rank's (128 + n for signal n, 124 when --timeout passed).)";

struct RunFlags {
  int ranks = 0;
  std::string hosts;
  std::string remote_shell = "ssh";
  std::string master_address;
  int master_port = 0;
  std::string timeout;
  bool tag_output = true;
};

// A port that is free now; a collision is unlikely and ends in a clear error. Rank 0 takes it seconds later,
// when its program has come so far. So that no client gets it meanwhile, it is below the ports that the
// kernel hands out by itself, and drawn so that jobs that start together do not meet.
int free_port() {
  constexpr int kFirst = 20000;
  constexpr int kLast = 31999;
  constexpr int kTries = 200;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(any(random)));
    const bool free = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (fd >= 0) close(fd);
    if (free) return ntohs(address.sin_port);
  }
  throw_error(ErrorCode::system, "cannot find a free port on 127.0.0.1 from {} to {}", kFirst, kLast);
}

// Without the key and the file that it came from, neither of which is for a command line.
std::vector<std::string> talweg_environment() {
  std::vector<std::string> pairs;
  for (char** entry = environ; *entry; ++entry)
    if (const std::string_view pair = *entry; pair.starts_with("TALWEG_") && !pair.starts_with("TALWEG_KEY"))
      pairs.emplace_back(pair);
  return pairs;
}

// The standard input of a remote-shell client: one line to read, and it ends only when this process does,
// which is how the far side learns of it.
class OneLineInput {
 public:
  explicit OneLineInput(const std::string& text) {
    if (pipe2(ends_, O_CLOEXEC) != 0) throw Error(ErrorCode::system, "cannot make a pipe");
    const std::string line = text + "\n";
    if (write(ends_[1], line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw Error(ErrorCode::system, "cannot write to a pipe");
  }
  ~OneLineInput() {
    close(ends_[0]);
    close(ends_[1]);
  }
  OneLineInput(const OneLineInput&) = delete;
  OneLineInput& operator=(const OneLineInput&) = delete;
  void become_stdin() const { dup2(ends_[0], STDIN_FILENO); }

 private:
  int ends_[2] = {-1, -1};
};

int run(const RunFlags& flags, const std::vector<std::string>& program) {
  RunRequest request;
  request.ranks = flags.ranks;
  if (!flags.hosts.empty()) request.hosts = parse_hosts(flags.hosts);
  request.program = program;
  request.remote_shell = flags.remote_shell;
  request.master_address = flags.master_address;
  request.master_port = flags.master_port > 0 ? flags.master_port : free_port();
  request.directory = std::filesystem::current_path();
  request.pass = talweg_environment();
  if (const std::string file = resolve("TALWEG_CLUSTER").value; !file.empty()) {
    request.aggregators = cluster::aggregator_names(formats::load_any(file));
    do {
      request.aggregator_port = free_port();
    } while (request.aggregator_port == request.master_port);
    request.talweg = std::filesystem::read_symlink("/proc/self/exe");
  }
  const auto key = live::find_job_key();
  request.key = key ? key->text : wire::random_key_text();

  fabric::LaunchOptions options;
  options.prefix = flags.tag_output;
  if (!flags.timeout.empty())
    options.timeout = std::chrono::milliseconds(parse_wait("--timeout", flags.timeout).value / 1'000'000);

  std::vector<fabric::Process> processes;
  for (auto& rank : plan_run(request).ranks) {
    fabric::Process process;
    process.aggregates = !rank.aggregator.empty();
    process.label = process.aggregates ? rank.aggregator : std::to_string(processes.size());
    process.command = std::move(rank.command);
    process.environment = std::move(rank.environment);
    if (rank.remote)
      process.before_exec = [input = std::make_shared<OneLineInput>(request.key)] { input->become_stdin(); };
    processes.push_back(std::move(process));
  }
  const auto result = fabric::launch(processes, options);
  if (!result.what.empty()) say("talweg run: {}\n", result.what);
  return result.exit_code;
}

}  // namespace

void add_run(CLI::App& app, Action* action) {
  auto flags = std::make_shared<RunFlags>();
  auto* sub = app.add_subcommand("run", "start the ranks of a group, here or on other hosts");
  sub->footer(kRunExamples);
  sub->add_option("-n,--ranks", flags->ranks, "how many ranks (default: as many as --hosts has slots)")
      ->check(whole_number(1, 1 << 16));
  sub->add_option("--hosts", flags->hosts, "host:slots,... ; localhost needs no remote shell");
  sub->add_option("--ssh", flags->remote_shell, "remote-shell command; host and command line are appended")
      ->capture_default_str();
  sub->add_option("--master-addr", flags->master_address, "where rank 0 listens (default: the first host)");
  sub->add_option("--master-port", flags->master_port, "default: one that is free on this machine")
      ->check(whole_number(1, 65535));
  sub->add_option("-T,--timeout", flags->timeout,
                  "stop everything after this time, such as 90s; 0: never, which is the default");
  sub->add_flag("--tag-output,!--no-tag-output", flags->tag_output,
                "prefix each line with its rank (default)");
  // An option of its own for the program's name: only while one is still open does CLI11 leave what follows
  // "--" to this subcommand. The program's arguments then arrive untouched as remaining().
  sub->prefix_command();
  auto name = std::make_shared<std::string>();
  sub->add_option("program", *name, "after --: the program and its arguments");
  sub->callback([flags, sub, name, action] {
    auto program = sub->remaining();
    if (!program.empty() && program.front() == "--") program.erase(program.begin());
    if (!name->empty()) program.insert(program.begin(), *name);
    *action = [flags, program] { return run(*flags, program); };
  });
}

}  // namespace talweg::cli
