#include "study/simulate_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/fail.h"
#include "base/units.h"
#include "forest/cost.h"
#include "forest/planner.h"
#include "formats/import.h"
#include "sim/traffic.h"
#include "study/by_bounded_loss.h"
#include "study/by_switch.h"
#include "study/perf_case.h"
#include "study/plan_request.h"
#include "study/simulate_notes.h"
#include "study/simulate_transport.h"
#include "study/sizes.h"
#include "text/yaml_reader.h"

namespace talweg::study {
namespace {

constexpr double kUsualMayLose = 0.01;  // of kBounded
constexpr double kMostMayLosePart = 0.5;

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
    throw_error(error.code(), "{}: {}", flag, error.what());
  }
}

double may_lose_of(const std::string& text) {
  if (const std::string wrong = real_number_complaint(text, 0, kMostMayLosePart); !wrong.empty())
    refuse("--may-lose: {}", wrong);
  double part = 0;
  std::from_chars(text.data(), text.data() + text.size(), part);
  return part;
}

std::int64_t bytes(const char* flag, const std::string& text) {
  return read(flag, [&] { return parse_bytes(text).value; });
}

// Virtual time ends after 106 days, and some of these are counted from any moment on.
Nanoseconds time(const char* flag, const std::string& text) {
  constexpr Nanoseconds kLongest{std::int64_t{10} * 86'400 * 1'000'000'000};
  const Nanoseconds parsed = read(flag, [&] { return parse_nanoseconds(text); });
  if (parsed > kLongest) refuse("{} {}: expected at most 10 days", flag, text);
  return parsed;
}

// Of 0 to 1.
std::vector<double> shares(const char* flag, const std::string& text, std::size_t count, const char* what) {
  std::vector<double> values;
  for (const std::string& part : split(text, ',')) {
    const auto value = text::read_number(part);
    if (!value || *value < 0 || *value > 1) refuse("{}: expected {}, got \"{}\"", flag, what, text);
    values.push_back(*value);
  }
  if (values.size() != count) refuse("{}: expected {}, got \"{}\"", flag, what, text);
  return values;
}

// Of what is not read from a file of flows or of a workload.
void check_calls(const SimulateOptions& o) {
  const PerfOptions& perf = o.perf;
  const int ranks = o.cluster.workers();
  for (const std::size_t size : perf.sizes)
    check_holds_element("--bytes", size, perf.op, perf.types[0], ranks);
  if (perf.op == Collective::send_recv && ranks < 2) refuse("--op send_recv: it needs at least two ranks");
  const forest::Request any = forest::even_request(perf.op, ranks, perf.root, 0, 1);
  const bool some_serve = std::ranges::any_of(
      o.algorithms, [&](const std::string& name) { return name.empty() || serves(name, any); });
  if (!some_serve) refuse("--algo {}: it does not serve {}", fmt::join(o.algorithms, ","), name(perf.op));
  const auto has = [&](const char* name) {
    return std::ranges::find(o.algorithms, name) != o.algorithms.end();
  };
  if (has(kBySwitch)) {
    check_sparse(o.sparse, perf.types, ranks);
    check_floats_as(o.floats_as, o.sparse, perf.types);
  }
  if (const std::string why = why_no_switch(o); has(kBySwitch) && !why.empty())
    refuse("--algo {}: {}", kBySwitch, why);
  if (const std::string why = why_not_bounded(o); has(kBounded) && !why.empty())
    refuse("--algo {}: {}", kBounded, why);
}

// The files of --cm and --workload, or the pattern of --flows.
void read_traffic(SimulateOptions& o, const SimulateRequest& raw) {
  if (!raw.flows.empty()) {
    o.flows = read("--flows", [&] { return sim::parse_traffic(raw.flows, o.cluster.workers(), raw.seed); });
  } else if (!o.matrix.empty()) {
    o.flows = read("--cm", [&] { return sim::parse_matrix(text::read_file(o.matrix), o.matrix); });
    if (o.flows.nodes > o.cluster.workers())
      refuse("--cm {}: the matrix is for {} hosts, the network has {}", o.matrix, o.flows.nodes,
             o.cluster.workers());
  }
  if (o.workload.empty()) return;
  o.job = read("--workload",
               [&] { return sim::parse_workload(text::read_file(o.workload), o.workload, o.cluster); });
  if (raw.fluid && !o.job.background.empty())
    refuse("--workload {}: background traffic is packets, which meet no flows with --fluid: expected none",
           o.workload);
  const auto bounded = [](const sim::WorkloadGroup& g) {
    return std::ranges::find(g.steps, sim::kBounded, &sim::WorkloadStep::algorithm) != g.steps.end();
  };
  if (raw.fluid && std::ranges::any_of(o.job.groups, bounded))
    refuse("--workload {}: sums with bounded loss are packets, and --fluid has none", o.workload);
  if (o.job.groups.empty() && o.job.flows.empty() && raw.horizon.empty())
    refuse("--workload {}: background traffic alone goes on for ever: give a --horizon at which the run ends",
           o.workload);
}

// "leaf0->spine1@1ms" or "spine1@1ms..2ms".
void read_failure(const std::string& text, const cluster::Cluster& cluster,
                  std::vector<sim::NetworkChange>& changes) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos)
    refuse("--fail: expected what@when or what@when..until, such as spine1@1ms..2ms, got \"{}\"", text);
  sim::NetworkChange change = read("--fail", [&] { return sim::change_of(text.substr(0, at), cluster); });
  const std::string when = text.substr(at + 1);
  const std::size_t dots = when.find("..");
  change.at = time("--fail", when.substr(0, dots));
  changes.push_back(change);
  if (dots == std::string::npos) return;
  change.at = time("--fail", when.substr(dots + 2));
  if (change.at <= changes.back().at) refuse("--fail: expected a repair after the failure, got \"{}\"", text);
  change.up = true;
  changes.push_back(change);
}

void read_queues(const SimulateRequest& raw, sim::NetworkOptions& network) {
  sim::QueuePolicy& queue = network.switch_queue;
  if (queue.least_left_first && raw.priorities > 1)
    refuse("--priorities {}: {} has one queue, whose order is what flows have left", raw.priorities,
           raw.transport);
  if (queue.least_left_first && raw.trim) refuse("--trim: {} drops what does not fit", raw.transport);
  if (raw.priorities > 0) queue.priorities = network.host_queue.priorities = raw.priorities;
  if (raw.queue != "auto") {
    queue.limit_round_trips = 0;
    queue.limit_bytes = bytes("--queue", raw.queue);
  }
  if (raw.mark != "auto") {
    queue.mark_by_delay = false;
    queue.mark_bytes = bytes("--mark", raw.mark);
  }
  queue.trim = queue.trim || raw.trim;
  settle_trimming(queue);
  if (raw.trim && !queue.trim) refuse("--trim: it needs --priorities of at least 2 and a --queue above 0");
  if (!raw.red.empty()) {
    const auto parts = split(raw.red, ',');
    if (parts.size() != 3) refuse("--red: expected least,most,probability, got \"{}\"", raw.red);
    queue.red.least_bytes = bytes("--red", parts[0]);
    queue.red.most_bytes = bytes("--red", parts[1]);
    queue.red.probability = shares("--red", parts[2], 1, "a probability")[0];
    if (queue.red.most_bytes <= queue.red.least_bytes)
      refuse("--red {}: expected most to be more than least", raw.red);
    queue.red.marks = true;
    queue.mark_by_delay = false;
    queue.mark_bytes = 0;
  }
  if (!raw.class_limits.empty()) {
    const auto parts = split(raw.class_limits, ',');
    if (parts.size() > queue.class_limit_bytes.size())
      refuse("--class-limits: there are {} priorities", sim::kPriorities);
    for (std::size_t i = 0; i < parts.size(); ++i)
      queue.class_limit_bytes[i] = bytes("--class-limits", parts[i]);
  }
  const std::int64_t packet = raw.payload + raw.header;
  const auto holds_a_packet = [packet](const char* flag, std::int64_t limit) {
    if (limit > 0 && limit < packet)
      refuse("{} {}: no packet of {} bytes would ever pass", flag, limit, packet);
  };
  holds_a_packet("--queue", queue.limit_bytes);
  for (const std::int64_t limit : queue.class_limit_bytes) holds_a_packet("--class-limits", limit);
}

void read_demotion(const SimulateRequest& raw, const TransportPreset& preset,
                   sim::TransportOptions& options) {
  if (raw.demote == "auto") return;
  if (!preset.demotes) refuse("--demote: not with --transport {}: expected pias", preset.name);
  const auto parts = split(raw.demote, ',');
  if (parts.empty() || parts.size() > options.demote_bytes.size())
    refuse("--demote: expected 1 to {} sizes, got \"{}\"", options.demote_bytes.size(), raw.demote);
  options.demote_bytes = {};
  std::int64_t last = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    options.demote_bytes[i] = bytes("--demote", parts[i]);
    if (options.demote_bytes[i] <= last)
      refuse("--demote {}: expected sizes above 0, each larger than the one before", raw.demote);
    last = options.demote_bytes[i];
  }
}

void read_losses(const SimulateRequest& raw, sim::LossModel& loss) {
  loss.loss = raw.loss;
  loss.bit_error_rate = raw.bit_errors;
  if (!raw.burst_loss.empty()) {
    const char* const what = "two probabilities: begins,ends, or one and a time: begins,100us";
    const auto parts = split(raw.burst_loss, ',');
    const bool timed = parts.size() == 2 && parts[1].ends_with('s');
    const std::string numbers = timed ? parts[0] : raw.burst_loss;
    const auto values = shares("--burst-loss", numbers, timed ? 1 : 2, what);
    loss.burst_begins = values[0];
    if (timed)
      loss.burst_lasts = time("--burst-loss", parts[1]);
    else
      loss.burst_ends = values[1];
    if (timed && loss.burst_lasts.value <= 0)
      refuse("--burst-loss: expected {}, got \"{}\"", what, raw.burst_loss);
  }
  loss.duplicate = raw.duplicate;
  loss.damage = raw.damage;
  if (!raw.reorder.empty()) {
    const auto parts = split(raw.reorder, ',');
    if (parts.size() != 2) refuse("--reorder: expected share,time, got \"{}\"", raw.reorder);
    loss.delay = shares("--reorder", parts[0], 1, "a share")[0];
    loss.most_delay = time("--reorder", parts[1]);
  }
}

}  // namespace

sim::HostCosts tcp_host_costs(const cluster::Cluster& cluster) {
  const forest::CostParameters calibrated = forest::parameters_for(cluster);
  const auto picoseconds = [](double seconds) {
    return static_cast<sim::Picoseconds>(std::lround(seconds * 1e12));
  };
  return {picoseconds(calibrated.tcp.per_batch), picoseconds(calibrated.tcp.per_byte),
          picoseconds(calibrated.reduce_per_byte)};
}

std::span<const Field<SimulateRequest>> simulate_fields() {
  using R = SimulateRequest;
  static constexpr const char *kCalls = "What happens", *kQueues = "Queues and losses",
                              *kHosts = "Routes and hosts";
  static const Field<R> kFields[] = {
      // clang-format off
      {.name = "network", .letters = ".", .member = &R::network,
       .help = "file of the network: talweg's own, or any that convert reads"},
      {.name = "topology", .letters = "", .member = &R::topology,
       .help = "or a generated one: star:hosts=16 leaf-spine:leaves=4,hosts=4,spines=4,rate=10G,up=40G "
               "fat-tree:hosts=1024,tiers=3,oversubscription=2 torus:dims=4x4x4 dragonfly:routers=4,hosts=2,global=1"},
      {.name = "op", .letters = "", .member = &R::op, .help = "collective", .group = kCalls},
      {.name = "bytes", .letters = "-b", .member = &R::bytes,
       .help = "sizes: 1M, 1M,4M or 1M..64M, which begins where each rank's part has an element", .group = kCalls},
      {.name = "factor", .letters = "-f", .member = &R::factor, .help = "from size to size",
       .least = 2, .most = 1 << 20, .group = kCalls},
      {.name = "algo", .letters = "", .member = &R::algo,
       .help = "algorithm, several with commas, or all (the one predicted cheapest); switch: nodes of the network "
               "sum as talweg switch does; bounded: a part may be lost, as in BoundedSums", .group = kCalls},
      {.name = "may-lose", .letters = "", .member = &R::may_lose,
       .help = "of --algo bounded (else 0.01) and switch (else 0): the part of a rank's data that may be missing",
       .group = kCalls},
      {.name = "may-lose-sender", .letters = "", .member = &R::may_lose_sender,
       .help = "of --algo bounded: the same on average over calls, less than --may-lose (default: no less)", .group = kCalls},
      {.name = "may-lose-call", .letters = "", .member = &R::may_lose_call,
       .help = "of --algo bounded: the part of what all others send a rank that may be missing (default: --may-lose)",
       .group = kCalls},
      {.name = "servers", .letters = "", .member = &R::servers,
       .help = "of --algo bounded: the ranks that sum, with commas (default: all)", .group = kCalls},
      {.name = "droppable", .letters = "", .member = &R::droppable,
       .help = "of --algo bounded: the part of the packets, those of the smallest values, that switches drop where they "
               "mark others", .most = 1, .group = kCalls},
      {.name = "keep-important", .letters = "", .member = &R::keep_important,
       .help = "of --algo bounded: of all others none may be missing", .group = kCalls},
      {.name = "paths", .letters = "", .member = &R::paths,
       .help = "of --algo bounded: so many ports that each rank sends from to each other one, which take ways of their own",
       .least = 1, .most = 16, .group = kCalls},
      {.name = "sparse-density", .letters = "", .member = &R::sparse_density,
       .help = "of --algo switch: the share of blocks that hold something, on each rank", .most = 1, .group = kCalls},
      {.name = "sparse-run", .letters = "", .member = &R::sparse_run,
       .help = "of --algo switch: elements that hold something together; 0: those of a block", .most = 1 << 30, .group = kCalls},
      {.name = "sparse-as", .letters = "", .member = &R::sparse_as,
       .help = "of --algo switch: what travels of these: blocks, pairs of key and value, or all",
       .words = "blocks,pairs,dense", .group = kCalls},
      {.name = "overlap", .letters = "", .member = &R::overlap,
       .help = "of --algo switch: of the ranks' blocks that hold something: random, all or none in common",
       .words = "random,all,none", .group = kCalls},
      {.name = "switch-format", .letters = "", .member = &R::switch_format,
       .help = "of --algo switch: how float travels: as it is (type), or as codes of 8 or 4 bits with scales",
       .words = "type,block8,block4", .group = kCalls},
      {.name = "type", .letters = "-d", .member = &R::type, .help = "data type", .group = kCalls},
      {.name = "root", .letters = "-r", .member = &R::root, .help = "root rank", .most = 1 << 20, .group = kCalls},
      {.name = "iters", .letters = "-n", .member = &R::iters, .help = "timed calls",
       .least = 1, .most = 1 << 20, .group = kCalls},
      {.name = "warmup", .letters = "-w", .member = &R::warmup, .help = "calls before those",
       .most = 1 << 20, .group = kCalls},
      {.name = "rest", .letters = "", .member = &R::rest,
       .help = "between those and the timed ones, which all ranks then start together", .group = kCalls},
      {.name = "average", .letters = "-a", .member = &R::average, .help = "over the ranks: mean, min, max or rank0",
       .words = "mean,min,max,rank0", .group = kCalls},
      {.name = "cm", .letters = "", .member = &R::matrix, .help = "flows of an htsim connection matrix instead",
       .group = kCalls},
      {.name = "flows", .letters = "", .member = &R::flows,
       .help = "or of a pattern: permutation:size=1MB shuffle:size=1MB incast:size=1MB,to=15 mixed:size=1MB,flows=4; "
               "also seed=, prio=, start=", .group = kCalls},
      {.name = "workload", .letters = "", .member = &R::workload,
       .help = "or groups, flows and background traffic of a file", .group = kCalls},
      {.name = "fluid", .letters = "", .member = &R::fluid,
       .help = "no packets: flows share links max-min fairly, as water would; quick, and near for long flows",
       .group = kCalls},
      {.name = "fail", .letters = "", .member = &R::fail,
       .help = "a link or a node, and when: leaf0->spine1@1ms, spine1@1ms..2ms; again for another", .group = kCalls},
      {.name = "horizon", .letters = "", .member = &R::horizon,
       .help = "virtual time by which all must have ended (a day)", .group = kCalls},
      {.name = "seed", .letters = "", .member = &R::seed, .help = "of all that is random", .group = kCalls},

      {.name = "transport", .letters = "", .member = &R::transport,
       .help = "dctcp: windows and marks; ndp, eqds: receivers ask, switches trim; pfabric: what has least left goes first; "
               "pias: dctcp, what has sent least goes first. Sets what is auto or 0 below",
       .words = "dctcp,ndp,eqds,pfabric,pias", .group = kQueues},
      {.name = "queue", .letters = "", .member = &R::queue,
       .help = "bytes that a switch keeps in front of a link; 0: no limit (dctcp, pias: 1M; ndp, eqds: 8 "
               "packets; pfabric: what the link sends in two of the longest path's round trips, at least 8 packets)",
       .group = kQueues},
      {.name = "mark", .letters = "", .member = &R::mark,
       .help = "mark packets that find more than this at a switch (ECN); 0: never (dctcp, pias: what the link sends in the "
               "longest path's round trip, at least 100K; others: never)", .group = kQueues},
      {.name = "red", .letters = "", .member = &R::red,
       .help = "least,most,probability: random early marking in place of --mark", .group = kQueues},
      {.name = "priorities", .letters = "", .member = &R::priorities,
       .help = "1: FIFO; up to 8: strict, a queue for each (0: dctcp, pfabric 1; ndp, eqds 2; pias 8)", .most = sim::kPriorities,
       .group = kQueues},
      {.name = "class-limits", .letters = "", .member = &R::class_limits,
       .help = "bytes beyond which packets of priority 0, 1, ... are dropped; 0: --queue alone counts", .group = kQueues},
      {.name = "demote", .letters = "", .member = &R::demote,
       .help = "bytes of a message after each of which what follows has a lower priority (pias: 7 from 1.1M to 3.4M)",
       .group = kQueues},
      {.name = "trim", .letters = "", .member = &R::trim,
       .help = "cut packets that do not fit down to their headers (with --priorities; ndp, eqds: always)",
       .group = kQueues},
      {.name = "loss", .letters = "", .member = &R::loss, .help = "probability that a link loses a packet",
       .most = 1, .group = kQueues},
      {.name = "bit-errors", .letters = "", .member = &R::bit_errors, .help = "probability that a bit is wrong",
       .most = 1, .group = kQueues},
      {.name = "burst-loss", .letters = "", .member = &R::burst_loss,
       .help = "begins,ends: probabilities, per packet, of a burst in which all is lost (Gilbert-Elliott); or "
               "begins,100us: for how long",
       .group = kQueues},
      {.name = "duplicate", .letters = "", .member = &R::duplicate, .help = "probability that a packet arrives twice",
       .most = 1, .group = kQueues},
      {.name = "damage", .letters = "", .member = &R::damage, .help = "probability that it arrives with flipped bits",
       .most = 1, .group = kQueues},
      {.name = "reorder", .letters = "", .member = &R::reorder,
       .help = "share,time: so many are held up for as long as up to this", .group = kQueues},

      {.name = "routing", .letters = "", .member = &R::routing,
       .help = "ecmp: a flow keeps to one of equal paths; spray: each packet the next (dctcp, pias: ecmp; others: spray)",
       .words = "auto,ecmp,spray", .group = kHosts},
      {.name = "processors", .letters = "", .member = &R::processors,
       .help = "of hosts: ideal: they cost nothing; tcp: what the cost model takes for TCP", .words = "ideal,tcp",
       .group = kHosts},
      {.name = "pacing", .letters = "", .member = &R::pacing,
       .help = "ranks send at the rates that plans give them, as with TALWEG_PACING=1", .group = kHosts},
      {.name = "payload", .letters = "", .member = &R::payload, .help = "of a full packet, bytes",
       .least = 64, .most = 65000, .group = kHosts},
      {.name = "header", .letters = "", .member = &R::header,
       .help = "of a packet on the wire, bytes; an acknowledgement's size", .least = 1, .most = 500, .group = kHosts},
      {.name = "window", .letters = "", .member = &R::window,
       .help = "packets that a flow begins with (0: dctcp, pias 10; ndp 30; others: as many as its path holds)",
       .most = 1 << 20, .group = kHosts},
      {.name = "most-window", .letters = "", .member = &R::most_window,
       .help = "bytes that a flow may have in flight", .group = kHosts},
      {.name = "ack-every", .letters = "", .member = &R::ack_every,
       .help = "packets in order that one acknowledgement answers (0: dctcp 2; others: 1, always but for pias)",
       .most = 64, .group = kHosts},
      {.name = "least-rto", .letters = "", .member = &R::least_rto,
       .help = "shortest retransmission timer (dctcp, pias: 10ms; ndp, eqds: 1ms; pfabric: always three round trips)", .group = kHosts},
      // clang-format on
  };
  return kFields;
}

std::span<const Field<SimulateRequest>> network_fields() {
  static const std::vector<Field<SimulateRequest>> fields = [] {
    std::vector<Field<SimulateRequest>> some;
    for (const char* name : {"topology", "fail", "seed", "queue", "mark", "red", "priorities", "class-limits",
                             "trim", "loss", "bit-errors", "burst-loss", "duplicate", "damage", "reorder"}) {
      some.push_back(*field_called(simulate_fields(), name));
      some.back().group = "Network, with --simulate";
    }
    const auto says = [&](std::string_view name, const char* help) {
      std::ranges::find(some, name, [](const auto& field) { return std::string_view(field.name); })->help =
          help;
    };
    says("topology",
         "in place of the file a generated one, such as star:hosts=4,rate=100M; then -- is in front of the "
         "program");
    says("fail",
         "a link or a node, and when from the start on: leaf0->spine1@1s, spine1@1s..2s; again for another");
    says("queue", "bytes that a switch keeps in front of a link; 0: no limit (1M)");
    says("mark",
         "mark packets that find more than this at a switch (ECN), and drop what cannot be marked; 0: never "
         "(never)");
    says("priorities", "1: FIFO; up to 8: strict, a queue for each, by a packet's DSCP (0: 1)");
    says("trim", "refused: programs know no packets without their payload");
    return some;
  }();
  return fields;
}

CheckedNetwork checked_network(const SimulateRequest& raw) {
  CheckedNetwork checked;
  checked.cluster = network_of(raw.network, raw.topology);
  if (raw.trim) refuse("--trim: programs know no packets without their payload: expected talweg simulate");
  sim::NetworkOptions& network = checked.options;
  network.switch_queue.limit_bytes = network.host_queue.limit_bytes = kQueueBytes;
  read_queues(raw, network);
  read_losses(raw, network.loss);
  network.seed = raw.seed;
  for (const std::string& text : raw.fail) read_failure(text, checked.cluster, checked.changes);
  checked.notes = idle_network_options(raw, network);
  return checked;
}

SimulateOptions checked(const SimulateRequest& raw) {
  SimulateOptions o;
  if (!raw.matrix.empty() && !raw.workload.empty()) refuse("--cm excludes --workload");
  if (!raw.flows.empty() && (!raw.matrix.empty() || !raw.workload.empty()))
    refuse("--flows excludes --cm and --workload");
  // What the file says itself.
  if (const char* file = !raw.matrix.empty()     ? "--cm"
                         : !raw.flows.empty()    ? "--flows"
                         : !raw.workload.empty() ? "--workload"
                                                 : nullptr)
    for (const char* name : {"op", "bytes", "factor", "algo", "may-lose", "may-lose-sender", "may-lose-call",
                             "servers", "sparse-density", "sparse-run", "sparse-as", "overlap",
                             "switch-format", "type", "root", "iters", "warmup", "rest", "average"}) {
      const auto& field = *field_called(simulate_fields(), name);
      if (value_of(raw, field) != value_of(SimulateRequest{}, field)) refuse("--{}: not with {}", name, file);
    }
  o.network = raw.network.empty() ? raw.topology : raw.network;
  o.cluster = network_of(raw.network, raw.topology);

  o.perf.op = collective_called(raw.op, "--op: ");
  const auto type = parse_data_type(raw.type);
  if (!type) refuse("--type: no data type is called \"{}\": expected {}", raw.type, data_type_names());
  o.perf.types = {*type};
  if (o.perf.op == Collective::barrier)
    o.perf.sizes = {0};
  else
    for (const auto size :
         parse_sizes(raw.bytes, raw.factor,
                     static_cast<std::int64_t>(least_bytes(o.perf.op, *type, o.cluster.workers()))))
      o.perf.sizes.push_back(static_cast<std::size_t>(size));
  o.perf.size_text = fmt::format("bytes {}", raw.bytes);
  o.perf.reductions = {ReduceOp::sum};
  o.perf.root = raw.root;
  check_root("--root", raw.root, o.perf.op, o.cluster.workers());
  o.perf.iterations = raw.iters;
  o.perf.warmup = raw.warmup;
  o.perf.average = raw.average == "min"     ? Average::min
                   : raw.average == "max"   ? Average::max
                   : raw.average == "rank0" ? Average::rank0
                                            : Average::mean;
  o.perf.check = 0;
  o.may_lose = raw.may_lose.empty() ? kUsualMayLose : may_lose_of(raw.may_lose);
  o.switch_may_lose = raw.may_lose.empty() ? 0 : o.may_lose;
  o.perf.may_lose_sender = parse_limit("--may-lose-sender", raw.may_lose_sender, o.may_lose);
  o.perf.may_lose_call = parse_limit("--may-lose-call", raw.may_lose_call, o.may_lose);
  o.perf.servers = parse_servers(raw.servers, o.cluster.workers());
  o.droppable = raw.droppable;
  o.keep_important = raw.keep_important;
  o.paths = static_cast<std::size_t>(raw.paths);
  o.sparse = {raw.sparse_density, parse_overlap(raw.overlap), static_cast<std::size_t>(raw.sparse_run),
              parse_sparse_form(raw.sparse_as)};
  o.floats_as = parse_floats_as(raw.switch_format);
  o.algorithms = raw.algo.empty() ? std::vector<std::string>{""} : split(raw.algo, ',');
  if (raw.algo == "all") {
    o.algorithms.clear();
    for (const forest::Planner& planner : forest::planners()) o.algorithms.push_back(planner.name);
  }
  for (const std::string& name : o.algorithms)
    if (!name.empty()) check_algorithm(name);

  auto& network = o.simulation.network;
  auto& transport = o.simulation.transport;
  transport.payload_bytes = raw.payload;
  transport.header_bytes = transport.acknowledgement_bytes = raw.header;
  const TransportPreset& preset = transport_preset(raw.transport);
  apply(preset, o.simulation);
  read_demotion(raw, preset, transport);
  o.transport = raw.transport;
  if (raw.fluid) transport.kind = sim::TransportKind::fluid;
  if (raw.matrix.empty() && raw.flows.empty() && raw.workload.empty()) {
    if (raw.algo == "all" && why_no_switch(o).empty()) o.algorithms.emplace_back(kBySwitch);
    check_calls(o);
  }
  read_queues(raw, network);
  read_losses(raw, network.loss);
  network.seed = o.simulation.seed = raw.seed;
  if (raw.window > 0) transport.first_window = raw.window;
  transport.most_window_bytes = bytes("--most-window", raw.most_window);
  if (raw.ack_every > 0) transport.ack_every = raw.ack_every;
  if (raw.least_rto != "auto") transport.least_rto = time("--least-rto", raw.least_rto);
  if (raw.routing != "auto") transport.spray = raw.routing == "spray";
  o.ranks.carry_payloads = false;
  o.ranks.pacing = raw.pacing;
  if (raw.processors == "tcp") o.ranks.costs = tcp_host_costs(o.cluster);
  for (const std::string& text : raw.fail) read_failure(text, o.cluster, o.changes);
  o.rest = sim::picoseconds(time("--rest", raw.rest));
  if (o.rest > 0 && raw.warmup == 0) refuse("--rest comes after warm-up calls: expected a --warmup above 0");
  if (!raw.horizon.empty()) o.horizon = sim::picoseconds(time("--horizon", raw.horizon));
  o.matrix = raw.flows.empty() ? raw.matrix : raw.flows;
  o.workload = raw.workload;
  read_traffic(o, raw);
  o.notes = idle_options(raw, o);
  return o;
}

}  // namespace talweg::study
