#include "cli/simulate_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/units.h"
#include "cli/number_checks.h"
#include "cli/output.h"
#include "cli/perf_case.h"
#include "forest/cost.h"
#include "forest/planner.h"
#include "formats/import.h"
#include "sim/topology_text.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::cli {
namespace {

constexpr sim::Picoseconds kDay = sim::Picoseconds{86'400} * 1'000'000'000'000;

[[noreturn]] void refuse_option(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, at);) parts.push_back(part);
  return parts;
}

// What `parse` makes of a flag's text, or its complaint with the flag's name in front.
template <typename Parse>
auto read(const char* flag, Parse&& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", flag, error.what()));
  }
}

std::int64_t bytes(const char* flag, const std::string& text) {
  return read(flag, [&] { return parse_bytes(text).value; });
}

Nanoseconds time(const char* flag, const std::string& text) {
  return read(flag, [&] { return parse_nanoseconds(text); });
}

// Of 0 to 1.
std::vector<double> shares(const char* flag, const std::string& text, std::size_t count, const char* what) {
  std::vector<double> values;
  for (const std::string& part : split(text, ',')) {
    const auto value = text::read_number(part);
    if (!value || *value < 0 || *value > 1)
      refuse_option(fmt::format("{}: expected {}, got \"{}\"", flag, what, text));
    values.push_back(*value);
  }
  if (values.size() != count) refuse_option(fmt::format("{}: expected {}, got \"{}\"", flag, what, text));
  return values;
}

// Of what is not read from a file of flows or of a workload.
void check_calls(const SimulateOptions& o) {
  const PerfOptions& perf = o.perf;
  const int ranks = o.cluster.workers();
  for (const std::size_t size : perf.sizes)
    check_holds_element("--bytes", size, perf.op, perf.types[0], ranks);
  if (perf.op == Collective::send_recv && ranks < 2)
    refuse_option("--op send_recv: it needs at least two ranks");
  const forest::Request any = forest::even_request(perf.op, ranks, perf.root, 0, 1);
  const bool serves = std::any_of(o.algorithms.begin(), o.algorithms.end(), [&](const std::string& name) {
    return name.empty() || forest::find_planner(name).serves(any);
  });
  if (!serves)
    refuse_option(
        fmt::format("--algo {}: it does not serve {}", fmt::join(o.algorithms, ","), name(perf.op)));
}

// The files of --cm and --workload.
void read_traffic(SimulateOptions& o) {
  if (!o.matrix.empty()) {
    o.flows = read("--cm", [&] { return sim::parse_matrix(text::read_file(o.matrix), o.matrix); });
    if (o.flows.nodes > o.cluster.workers())
      refuse_option(fmt::format("--cm {}: the matrix is for {} hosts, the network has {}", o.matrix,
                                o.flows.nodes, o.cluster.workers()));
  }
  if (o.workload.empty()) return;
  o.job = read("--workload",
               [&] { return sim::parse_workload(text::read_file(o.workload), o.workload, o.cluster); });
  if (o.job.groups.empty() && o.job.flows.empty() && o.horizon == sim::kNever)
    refuse_option(fmt::format(
        "--workload {}: background traffic alone goes on for ever: give a --horizon at which the run ends",
        o.workload));
}

// "leaf0->spine1@1ms" or "spine1@1ms..2ms".
void read_failure(const std::string& text, const cluster::Cluster& cluster,
                  std::vector<sim::NetworkChange>& changes) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos)
    refuse_option(fmt::format(
        "--fail: expected what@when or what@when..until, such as spine1@1ms..2ms, got \"{}\"", text));
  sim::NetworkChange change = read("--fail", [&] { return sim::change_of(text.substr(0, at), cluster); });
  const std::string when = text.substr(at + 1);
  const std::size_t dots = when.find("..");
  change.at = time("--fail", when.substr(0, dots));
  changes.push_back(change);
  if (dots == std::string::npos) return;
  change.at = time("--fail", when.substr(dots + 2));
  if (change.at <= changes.back().at)
    refuse_option(fmt::format("--fail: expected a repair after the failure, got \"{}\"", text));
  change.up = true;
  changes.push_back(change);
}

}  // namespace

std::vector<std::size_t> scanned_sizes(const std::string& text, int factor, std::size_t least) {
  std::vector<std::size_t> all;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find("..");
    const auto first = static_cast<std::size_t>(bytes("--bytes", part.substr(0, dots)));
    const auto last =
        dots == std::string::npos ? first : static_cast<std::size_t>(bytes("--bytes", part.substr(dots + 2)));
    if (first > last) refuse_option(fmt::format("--bytes: {} is larger than what it leads to", part));
    if (first == 0 && last > 0) refuse_option("--bytes: a size of 0 never grows by a factor");
    const auto range = sizes_to_scan(first, last, 0, static_cast<std::size_t>(factor));
    for (const std::size_t size : range)
      if (size >= least || size == range.back()) all.push_back(size);
  }
  if (all.empty()) refuse_option("--bytes: expected sizes such as 1M, 1M,4M or 1M..64M");
  return all;
}

sim::HostCosts tcp_host_costs(const cluster::Cluster& cluster) {
  const forest::CostParameters calibrated = forest::parameters_for(cluster);
  const auto picoseconds = [](double seconds) {
    return static_cast<sim::Picoseconds>(std::lround(seconds * 1e12));
  };
  return {Nanoseconds{std::lround(calibrated.tcp.per_frame * 1e9)}, picoseconds(calibrated.tcp.per_byte),
          picoseconds(calibrated.reduce_per_byte)};
}

struct SimulateFlags::Raw {
  std::string network, topology;
  std::string op = "all_reduce", bytes = "1M", type = "float", algorithm;
  int factor = 2, root = 0, iterations = 3, warmup = 1;
  std::string average = "mean", rest = "0";
  std::string matrix, workload;
  std::string queue = "1M", mark = "100K", red, class_limits, hosts = "ideal", routing = "ecmp";
  int priorities = 1;
  bool trim = false;
  double loss = 0, bit_errors = 0, duplicate = 0, damage = 0;
  std::string burst_loss, reorder;
  std::vector<std::string> failures;
  int payload = 1448, header = 66, window = 10;
  std::string most_window = "4M", least_rto = "10ms", horizon;
  std::uint64_t seed = 1;
  std::string json, csv, trace, html;
  bool progress = false;
};

SimulateFlags::SimulateFlags() : raw_(std::make_shared<Raw>()) {}

void SimulateFlags::add_to(CLI::App& app) {
  const auto raw = raw_;
  const auto share = real_number(0, 1);
  app.add_option("network", raw->network, "file of the network: talweg's own, or any that convert reads");
  app.add_option(
      "--topology", raw->topology,
      "or a generated one: star:hosts=16 leaf-spine:leaves=4,hosts=4,spines=4,rate=10G,up=40G "
      "fat-tree:hosts=1024,tiers=3,oversubscription=2 torus:dims=4x4x4 dragonfly:routers=4,hosts=2,global=1");
  const char* what = "What happens";
  app.add_option("--op", raw->op, "collective")->capture_default_str()->group(what);
  app.add_option("-b,--bytes", raw->bytes,
                 "sizes: 1M, 1M,4M or 1M..64M, which begins where each rank's part has an element")
      ->capture_default_str()
      ->group(what);
  app.add_option("--factor", raw->factor, "from size to size")
      ->check(whole_number(2, 1 << 20))
      ->capture_default_str()
      ->group(what);
  app.add_option("--algo", raw->algorithm,
                 "algorithm, several with commas, or all (the one predicted cheapest)")
      ->group(what);
  app.add_option("--type", raw->type, "data type")->capture_default_str()->group(what);
  app.add_option("--root", raw->root, "root rank")->check(whole_number(0, 1 << 20))->group(what);
  app.add_option("-n,--iters", raw->iterations, "timed calls")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str()
      ->group(what);
  app.add_option("-w,--warmup", raw->warmup, "calls before those")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str()
      ->group(what);
  app.add_option("--rest", raw->rest, "between those and the timed ones, which all ranks then start together")
      ->capture_default_str()
      ->group(what);
  app.add_option("--average", raw->average, "over the ranks: mean, min, max or rank0")
      ->check(CLI::IsMember(std::vector<std::string>{"mean", "min", "max", "rank0"}))
      ->capture_default_str()
      ->group(what);
  auto* matrix =
      app.add_option("--cm", raw->matrix, "flows of an htsim connection matrix instead")->group(what);
  app.add_option("--workload", raw->workload, "or groups, flows and background traffic of a file")
      ->excludes(matrix)
      ->group(what);
  app.add_option("--fail", raw->failures,
                 "a link or a node, and when: leaf0->spine1@1ms, spine1@1ms..2ms; again for another")
      ->allow_extra_args(false)
      ->group(what);
  app.add_option("--horizon", raw->horizon,
                 "virtual time by which all must have ended (a day; workloads: none)")
      ->group(what);
  app.add_option("--seed", raw->seed, "of all that is random")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str()
      ->group(what);

  const char* queues = "Queues and losses";
  app.add_option("--queue", raw->queue, "bytes that a switch keeps in front of a link; 0: no limit")
      ->capture_default_str()
      ->group(queues);
  app.add_option("--mark", raw->mark, "mark packets that find more than this (ECN); 0: never")
      ->capture_default_str()
      ->group(queues);
  app.add_option("--red", raw->red, "least,most,probability: random early marking in place of --mark")
      ->group(queues);
  app.add_option("--priorities", raw->priorities, "1: FIFO; up to 8: strict, a queue for each")
      ->check(whole_number(1, sim::kPriorities))
      ->capture_default_str()
      ->group(queues);
  app.add_option("--class-limits", raw->class_limits,
                 "bytes beyond which packets of priority 0, 1, ... are dropped; 0: --queue alone counts")
      ->group(queues);
  app.add_flag("--trim", raw->trim, "cut packets that do not fit down to their headers (with --priorities)")
      ->group(queues);
  app.add_option("--loss", raw->loss, "probability that a link loses a packet")->check(share)->group(queues);
  app.add_option("--bit-errors", raw->bit_errors, "probability that a bit is wrong")
      ->check(share)
      ->group(queues);
  app.add_option("--burst-loss", raw->burst_loss,
                 "begins,ends: probabilities, per packet, of a burst in which all is lost (Gilbert-Elliott)")
      ->group(queues);

  app.add_option("--duplicate", raw->duplicate, "probability that a packet arrives twice")
      ->check(share)
      ->group(queues);
  app.add_option("--damage", raw->damage, "probability that it arrives with flipped bits")
      ->check(share)
      ->group(queues);
  app.add_option("--reorder", raw->reorder, "share,time: so many are held up for as long as up to this")
      ->group(queues);

  const char* hosts = "Routes and hosts";
  app.add_option("--routing", raw->routing,
                 "ecmp: a flow keeps to one of equal paths; spray: each packet the next")
      ->check(CLI::IsMember(std::vector<std::string>{"ecmp", "spray"}))
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--hosts", raw->hosts,
                 "ideal: processors cost nothing; tcp: what the cost model takes for TCP")
      ->check(CLI::IsMember(std::vector<std::string>{"ideal", "tcp"}))
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--payload", raw->payload, "of a full packet, bytes")
      ->check(whole_number(64, 65000))
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--header", raw->header, "of a packet on the wire, bytes; an acknowledgement's size")
      ->check(whole_number(1, 500))
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--window", raw->window, "packets that a flow begins with")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--most-window", raw->most_window, "bytes that a flow may have in flight")
      ->capture_default_str()
      ->group(hosts);
  app.add_option("--least-rto", raw->least_rto, "shortest retransmission timer")
      ->capture_default_str()
      ->group(hosts);

  const char* output = "Output";
  app.add_option("-J,--json", raw->json, "results as JSON to this file; - for standard output")
      ->group(output);
  app.add_option("--csv", raw->csv, "results as CSV; likewise")->group(output);
  app.add_option("--trace", raw->trace, "what moved when, for ui.perfetto.dev")->group(output);
  app.add_option("--html", raw->html, "a page with the use of links and the queues over time")->group(output);
  app.add_flag("--progress", raw->progress, "say how far it is, even to a file")->group(output);
}

SimulateOptions SimulateFlags::checked() const {
  const Raw& raw = *raw_;
  SimulateOptions o;
  if (!raw.network.empty() && !raw.topology.empty())
    refuse_option(
        fmt::format("--topology {}: the file {} describes a network, too: expected only one of them",
                    raw.topology, raw.network));
  if (raw.network.empty() && raw.topology.empty())
    refuse_option(
        "expected a file of the network, or --topology such as leaf-spine:leaves=4,hosts=4,spines=4");
  o.network = raw.network.empty() ? raw.topology : raw.network;
  o.cluster = raw.network.empty() ? sim::parse_topology(raw.topology) : formats::load_any(raw.network);

  const auto op = parse_collective(raw.op);
  if (!op) refuse_option(fmt::format("--op: no collective is called \"{}\"", raw.op));
  o.perf.op = *op;
  const auto type = parse_data_type(raw.type);
  if (!type) refuse_option(fmt::format("--type: no data type is called \"{}\"", raw.type));
  o.perf.types = {*type};
  o.perf.sizes = {0};
  if (*op != Collective::barrier)
    o.perf.sizes = scanned_sizes(raw.bytes, raw.factor, least_bytes(*op, *type, o.cluster.workers()));
  o.perf.size_text = fmt::format("bytes {}", raw.bytes);
  o.perf.reductions = {ReduceOp::sum};
  o.perf.root = raw.root;
  if (raw.root != 0 && !has_root(*op))
    refuse_option(fmt::format("--root {}: {} has no root", raw.root, raw.op));
  if (raw.root >= o.cluster.workers())
    refuse_option(
        fmt::format("--root {}: there are {} ranks, numbered from 0", raw.root, o.cluster.workers()));
  o.perf.iterations = raw.iterations;
  o.perf.warmup = raw.warmup;
  o.perf.average = raw.average == "min"     ? Average::min
                   : raw.average == "max"   ? Average::max
                   : raw.average == "rank0" ? Average::rank0
                                            : Average::mean;
  o.perf.check = 0;
  o.algorithms = raw.algorithm.empty() ? std::vector<std::string>{""} : split(raw.algorithm, ',');
  if (raw.algorithm == "all") {
    o.algorithms.clear();
    for (const forest::Planner& planner : forest::planners()) o.algorithms.push_back(planner.name);
  }
  for (const std::string& name : o.algorithms)
    if (!name.empty()) forest::find_planner(name);
  if (raw.matrix.empty() && raw.workload.empty()) check_calls(o);

  auto& network = o.simulation.network;
  sim::QueuePolicy& queue = network.switch_queue;
  queue.priorities = raw.priorities;
  queue.limit_bytes = bytes("--queue", raw.queue);
  queue.mark_bytes = bytes("--mark", raw.mark);
  queue.trim = raw.trim;
  if (raw.trim && (raw.priorities < 2 || queue.limit_bytes == 0))
    refuse_option("--trim: it needs --priorities of at least 2 and a --queue above 0");
  if (!raw.red.empty()) {
    const auto parts = split(raw.red, ',');
    if (parts.size() != 3)
      refuse_option(fmt::format("--red: expected least,most,probability, got \"{}\"", raw.red));
    queue.red.least_bytes = bytes("--red", parts[0]);
    queue.red.most_bytes = bytes("--red", parts[1]);
    queue.red.probability = shares("--red", parts[2], 1, "a probability")[0];
    if (queue.red.most_bytes <= queue.red.least_bytes)
      refuse_option(fmt::format("--red {}: expected most to be more than least", raw.red));
    queue.red.marks = true;
    queue.mark_bytes = 0;
  }
  if (!raw.class_limits.empty()) {
    const auto parts = split(raw.class_limits, ',');
    if (parts.size() > queue.class_limit_bytes.size())
      refuse_option(fmt::format("--class-limits: there are {} priorities", sim::kPriorities));
    for (std::size_t i = 0; i < parts.size(); ++i)
      queue.class_limit_bytes[i] = bytes("--class-limits", parts[i]);
  }
  const std::int64_t packet = raw.payload + raw.header;
  const auto holds_a_packet = [packet](const char* flag, std::int64_t limit) {
    if (limit > 0 && limit < packet)
      refuse_option(fmt::format("{} {}: no packet of {} bytes would ever pass", flag, limit, packet));
  };
  holds_a_packet("--queue", queue.limit_bytes);
  for (const std::int64_t limit : queue.class_limit_bytes) holds_a_packet("--class-limits", limit);
  // A host holds its packets back rather than losing them.
  network.host_queue.priorities = raw.priorities;
  network.host_queue.mark_bytes = queue.mark_bytes;
  network.loss.loss = raw.loss;
  network.loss.bit_error_rate = raw.bit_errors;
  if (!raw.burst_loss.empty()) {
    const auto parts = shares("--burst-loss", raw.burst_loss, 2, "two probabilities: begins,ends");
    network.loss.burst_begins = parts[0];
    network.loss.burst_ends = parts[1];
  }
  network.loss.duplicate = raw.duplicate;
  network.loss.damage = raw.damage;
  if (!raw.reorder.empty()) {
    const auto parts = split(raw.reorder, ',');
    if (parts.size() != 2)
      refuse_option(fmt::format("--reorder: expected share,time, got \"{}\"", raw.reorder));
    network.loss.delay = shares("--reorder", parts[0], 1, "a share")[0];
    network.loss.most_delay = time("--reorder", parts[1]);
  }
  network.seed = o.simulation.seed = raw.seed;
  auto& transport = o.simulation.transport;
  transport.payload_bytes = raw.payload;
  transport.header_bytes = transport.acknowledgement_bytes = raw.header;
  transport.first_window = raw.window;
  transport.most_window_bytes = bytes("--most-window", raw.most_window);
  transport.least_rto = time("--least-rto", raw.least_rto);
  transport.spray = raw.routing == "spray";
  o.ranks.carry_payloads = false;
  if (raw.hosts == "tcp") o.ranks.costs = tcp_host_costs(o.cluster);
  for (const std::string& text : raw.failures) read_failure(text, o.cluster, o.changes);
  o.rest = sim::picoseconds(time("--rest", raw.rest));
  if (o.rest > 0 && raw.warmup == 0)
    refuse_option("--rest comes after warm-up calls: expected a --warmup above 0");
  // What is cut off for good is sent again and again; a workload's background traffic goes on of itself.
  if (!raw.horizon.empty())
    o.horizon = sim::picoseconds(time("--horizon", raw.horizon));
  else if (raw.workload.empty())
    o.horizon = kDay;
  o.matrix = raw.matrix;
  o.workload = raw.workload;
  read_traffic(o);
  o.json = raw.json;
  o.csv = raw.csv;
  if (o.json == "-" && o.csv == "-") refuse_option("--json - and --csv -: only one can have standard output");
  o.trace = raw.trace;
  o.html = raw.html;
  check_outputs({o.json, o.csv, o.trace, o.html}, {o.network, o.matrix, o.workload});
  o.progress = raw.progress;
  return o;
}

}  // namespace talweg::cli
