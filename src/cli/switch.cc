// talweg switch: sums in the network, in software.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/host_port.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "live/aggregation/switch_service.h"
#include "live/join/job_key.h"
#include "live/udp/udp_socket.h"
#include "observe/switch_metrics.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

constexpr const char* kSwitchExamples = R"(
Examples:
  talweg switch --listen 127.0.0.1:4711                             # for workers of this host
  talweg switch --listen 10.0.0.9:4711 --key-file key --threads 4 --status switch.prom
  talweg run -n 4 -- talweg perf all_reduce --switch 127.0.0.1:4711
  talweg switch --listen 10.0.1.9:4711 --above 10.0.0.9:4711 --key-file key   # of a rack, below that one
  talweg switch --listen 10.0.0.9:4711 --key-file key --multicast 239.1.2.0
  talweg switch drain --listen 10.0.0.9:4711 --key-file key         # on its own host

Workers join over TCP at the port; what is summed comes in UDP datagrams, to this port and, with several threads, those
behind it. Where others than this host can reach it, it needs the secret that all of its workers hold: from --key-file,
TALWEG_KEY_FILE or TALWEG_KEY; talweg perf has --switch-key-file for it. SIGTERM drains it: it ends with the last of
its jobs. SIGHUP reads the key and --result-rates again.

With --above it is the switch of one rack: it sums what its own workers send, passes one stream on to the switch above,
and gives what that one makes of all racks' streams to its workers. Each rank names its own rack's switch.

With --multicast a job's results leave once for all of its workers, to a multicast group of its own, where the network
brings that to each of them; where it does not, each worker gets its own, as without it.)";

struct SwitchFlags {
  std::string listen, key_file, above, above_key_file, status,
      memory = "256M", rate = "100Gbit/s", result_rate = "none", result_rates, timeout = "10s";
  int threads = 1;
  std::uint64_t jobs = 16, workers = 1024, slots = 256;
  std::string multicast;
  std::optional<int> multicast_hops;
  std::vector<std::string> switchml;
  std::optional<int> switchml_port;
  int switchml_elements = 256;
  bool switchml_open = false;
  bool quiet = false;
};

live::Endpoint endpoint_of(const char* flag, const std::string& text, int least_port) {
  const auto place = parse_host_port(text, least_port);
  if (!place) refuse("{}: expected an address and a port, such as 127.0.0.1:4711, got \"{}\"", flag, text);
  return {place->host, place->port};
}

std::optional<wire::Secret> key_of(const std::string& file) {
  if (!file.empty()) return wire::secret_from_text(live::read_job_key("--key-file", file).text);
  const auto key = live::find_job_key();
  if (!key) return std::nullopt;
  return wire::secret_from_text(key->text);
}

// These come to a descriptor from now on, in threads that are started later, too.
FileDescriptor signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Whoever reads what it prints may go: that ends no job.
  ::signal(SIGPIPE, SIG_IGN);
  FileDescriptor fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw_system("wait for signals");
  return fd;
}

double job_rate_of(const std::string& text) {
  try {
    const double rate = parse_bandwidth(text).bytes_per_second();
    const auto last = text.find_last_not_of(" \t");
    if (std::isalpha(static_cast<unsigned char>(text[last])) == 0)
      refuse("bandwidth \"{}\": which unit? such as \"1 Gbit/s\", \"200Mbit/s\" or \"25GB/s\"", text);
    return rate;
  } catch (const Error& e) {
    refuse("--job-rate: {}", e.what());
  }
}

double result_rate_of(const std::string& text) {
  try {
    return live::parse_result_rate(text);
  } catch (const Error& e) {
    refuse("--result-rate: {}", e.what());
  }
}

live::ResultRates result_rates_of(const std::string& file) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  std::error_code ignored;
  if (std::filesystem::is_other(std::filesystem::status(file, ignored)))
    refuse("--result-rates: {} is a pipe or a device, which all jobs would wait for: expected a file", file);
  return live::parse_result_rates(read_input(file, "--result-rates: " + file, kMostBytes),
                                  "--result-rates: " + file);
}

// A pipe or a device would let all jobs wait for whoever is behind it.
void check_status_file(const std::string& path) {
  std::error_code ignored;
  if (!path.empty() && path != "-" && std::filesystem::is_other(std::filesystem::status(path, ignored)))
    refuse("--status: {} is a pipe or a device, which may not take what the switch writes: expected a file",
           path);
}

live::SwitchmlPortOptions switchml_options(const SwitchFlags& flags, const live::SwitchServiceOptions& with) {
  live::SwitchmlPortOptions o;
  o.host = with.listen.host;
  o.first_port = flags.switchml_port.value_or(wire::kSwitchmlFirstPort);
  o.last_port = flags.switchml_port.value_or(wire::kSwitchmlLastPort);  // one port, where it is named
  o.workers = flags.switchml;
  if (flags.slots > wire::kSwitchmlSlots)
    refuse("--slots: SwitchML's packets can name {} of them, not {}", wire::kSwitchmlSlots, flags.slots);
  o.slots = static_cast<std::uint16_t>(flags.slots);
  o.elements = static_cast<std::uint16_t>(flags.switchml_elements);
  o.bytes_per_second = with.quotas.bytes_per_second;
  o.memory_bytes = with.memory_bytes;
  o.anybody = flags.switchml_open;
  return o;
}

live::SwitchAboveOptions above_options(const SwitchFlags& flags) {
  live::SwitchAboveOptions above{endpoint_of("--above", flags.above, 1)};
  if (!flags.above_key_file.empty())
    above.key = [file = flags.above_key_file] {
      return std::optional(wire::secret_from_text(live::read_job_key("--above-key-file", file).text));
    };
  return above;
}

void greet(const live::SwitchService& service, const SwitchFlags& flags, bool has_key) {
  fmt::print("switch at {}, UDP ports {} to {}, {}\nmemory: {}\n", to_string(service.address()),
             service.address().port, service.address().port + flags.threads - 1,
             has_key ? "with a job key" : "without a job key: for this host alone", service.memory());
  if (!service.above().empty()) fmt::print("jobs of several racks: summed by {}\n", service.above());
  if (const std::string groups = service.groups(); !groups.empty()) fmt::print("multicast: {}\n", groups);
  if (const live::SwitchmlPort* const switchml = service.switchml())
    fmt::print(
        "switchml: {} workers of {} elements a packet, UDP ports {} to {}, known by their hosts alone\n",
        flags.switchml.size(), flags.switchml_elements, switchml->first_port(), switchml->last_port());
  std::fflush(stdout);
}

int serve(const SwitchFlags& flags) {
  if (flags.listen.empty()) refuse("--listen is required: an address and a port, such as 127.0.0.1:4711");
  live::SwitchServiceOptions options;
  options.listen = endpoint_of("--listen", flags.listen, 0);
  options.threads = flags.threads;
  options.quotas = {flags.jobs, flags.workers, flags.slots, 0, result_rate_of(flags.result_rate)};
  try {
    options.memory_bytes = static_cast<std::size_t>(parse_bytes(flags.memory).value);
  } catch (const Error& e) {
    refuse("--memory: {}", e.what());
  }
  options.quotas.bytes_per_second = job_rate_of(flags.rate);
  if (!flags.result_rates.empty())
    options.result_rates = [file = flags.result_rates] { return result_rates_of(file); };
  check_status_file(flags.status);
  const text::OutputFile status("--status", flags.status);
  options.key = [file = flags.key_file] { return key_of(file); };
  options.say = [](const std::string& text) { say("talweg switch: {}\n", printable(text)); };
  options.describe = [](const live::SwitchStatus& s) { return observe::switch_metrics(s); };
  if (status.wanted())
    options.publish = [&status, said = std::string()](const std::string& text) mutable {
      std::string wrong;
      try {
        status.write(text);
      } catch (const Error& e) {  // a full disk is no reason to let jobs fail
        wrong = printable(e.what());
      }
      // Once, however often it is tried again.
      if (wrong != std::exchange(said, wrong) && !wrong.empty()) say("talweg switch: {}\n", wrong);
    };
  if (flags.switchml.empty() &&
      (flags.switchml_open || flags.switchml_port || flags.switchml_elements != 256))
    refuse(
        "--switchml-port, --switchml-elements and --switchml-open are for --switchml, which names the "
        "workers' hosts");
  if (!flags.switchml.empty()) options.switchml = switchml_options(flags, options);
  if (flags.above.empty() && !flags.above_key_file.empty())
    refuse("--above-key-file is for --above, which names the switch above");
  if (!flags.above.empty()) options.above = above_options(flags);
  if (flags.multicast.empty() && flags.multicast_hops)
    refuse("--multicast-hops is for --multicast, which names the group of results");
  if (!flags.multicast.empty())
    options.multicast = live::SwitchMulticastOptions{flags.multicast, flags.multicast_hops.value_or(1)};
  const FileDescriptor told = signals();
  live::SwitchService service(options);
  if (!flags.quiet) greet(service, flags, options.key().has_value());
  if (!service.shortage().empty()) say("talweg switch: {}\n", service.shortage());
  service.serve(told);
  return 0;
}

int order(const SwitchFlags& flags, wire::SwitchDo what) {
  if (flags.listen.empty()) refuse("--listen is required: where the switch listens, such as 127.0.0.1:4711");
  const std::int64_t wait_ns = parse_wait("--timeout", flags.timeout).value;
  const auto key = key_of(flags.key_file);
  const std::string answer = live::give_order(endpoint_of("--listen", flags.listen, 0),
                                              key.value_or(wire::Secret{}), what, live::now_ns() + wait_ns);
  text::print(answer.empty() || answer.back() == '\n' ? answer : answer + '\n');
  return 0;
}

}  // namespace

void add_switch(CLI::App& app, Action* action) {
  auto flags = std::make_shared<SwitchFlags>();
  auto* sub = app.add_subcommand("switch", "sum in the network for the workers of many jobs, in software");
  sub->footer(kSwitchExamples);
  const auto add_place = [flags](CLI::App* to) {
    to->add_option("--listen", flags->listen, "address and port: 10.0.0.9:4711; port 0: any");
    to->add_option("--key-file", flags->key_file, "a file of mode 600 with the secret that its workers hold");
  };
  add_place(sub);
  sub->add_option("--above", flags->above,
                  "address and port of the switch that sums what this one and others have summed");
  sub->add_option("--above-key-file", flags->above_key_file,
                  "a file of mode 600 with its secret, where it is another one");
  sub->add_option("--threads", flags->threads, "threads, each with a UDP port and slots of its own")
      ->check(whole_number(1, 64))
      ->capture_default_str();
  sub->add_option("--max-jobs", flags->jobs, "jobs at a time")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  sub->add_option("--workers", flags->workers, "workers of all jobs together")
      ->check(whole_number(1, 65'000))
      ->capture_default_str();
  sub->add_option("--slots", flags->slots, "slots of a job, of each thread, at most")
      ->check(whole_number(1, 65'535))
      ->capture_default_str();
  sub->add_option("--memory", flags->memory, "of the slots of all jobs")->capture_default_str();
  sub->add_option("--job-rate", flags->rate,
                  "what the workers of a job may send together and have sent again, at least 8kbit/s")
      ->capture_default_str();
  sub->add_option("--result-rate", flags->result_rate,
                  "of the results that the workers of a job get together: those beyond it wait")
      ->capture_default_str();
  sub->add_option("--result-rates", flags->result_rates,
                  "a file with lines of a job's name and the rate of its results; *: all others");
  sub->add_option(
      "--multicast", flags->multicast,
      "results once for all workers of a job: the group of the first job, the others' are behind it");
  sub->add_option("--multicast-hops", flags->multicast_hops,
                  "for these, as a TTL; 1: no router passes them on")
      ->check(whole_number(1, 255));
  sub->add_option("--status", flags->status,
                  "a file for Prometheus' textfile collector, every 5 s; -: standard output");
  sub->add_flag("-q,--quiet", flags->quiet, "print nothing but what goes wrong");
  const char* const group = "SwitchML's workers";
  sub->add_option("--switchml", flags->switchml,
                  "addresses of the hosts of workers that speak SwitchML's packets: 10.0.0.1,10.0.0.2")
      ->delimiter(',')
      ->group(group);
  sub->add_option("--switchml-port", flags->switchml_port,
                  "the UDP port for them, in place of 48864 to 48879; 0: any")
      ->check(whole_number(0, 65'535))
      ->group(group);
  sub->add_option("--switchml-elements", flags->switchml_elements, "of a packet")
      ->check(CLI::IsMember({64, 256}))
      ->capture_default_str()
      ->group(group);
  sub->add_flag("--switchml-open", flags->switchml_open,
                "serve them beyond this host, too: nothing in their packets proves who has sent them")
      ->group(group);
  sub->callback([=] {
    if (sub->get_subcommands().empty()) *action = [=] { return serve(*flags); };
  });

  struct Order {
    const char* name;
    const char* help;
    wire::SwitchDo what;
  };
  for (const Order& o :
       {Order{"status", "what it does, as Prometheus has it", wire::SwitchDo::status},
        Order{"drain", "let it take no new jobs, and end with its last one", wire::SwitchDo::drain},
        Order{"reload", "let it read its key and --result-rates again", wire::SwitchDo::reload}}) {
    CLI::App* order_app = sub->add_subcommand(o.name, o.help);
    order_app->footer("\nTo a switch on this host, by a process of its user or of root.");
    add_place(order_app);
    order_app->add_option("-T,--timeout", flags->timeout, "for its answer")->capture_default_str();
    order_app->callback([=, what = o.what] { *action = [=] { return order(*flags, what); }; });
  }
  sub->require_subcommand(0, 1);
}

}  // namespace talweg::cli
