#include "study/simulate_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string_view>

#include "cluster/routing.h"
#include "protocol/bounded/packet_class.h"
#include "study/by_bounded_loss.h"
#include "study/by_switch.h"
#include "study/plan_study.h"
#include "study/sizes.h"
#include "wire/bounded.h"
#include "wire/datagram.h"

namespace talweg::study {
namespace {

bool given(const SimulateRequest& request, const char* name) {
  const auto& field = *field_called(simulate_fields(), name);
  return value_of(request, field) != value_of(SimulateRequest{}, field);
}

// "--loss, --queue" of those that are given; empty if none is.
std::string those_given(const SimulateRequest& request, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names)
    if (given(request, name)) text += fmt::format("{}--{}", text.empty() ? "" : ", ", name);
  return text;
}

bool is_bounded(const sim::WorkloadStep& step) {
  return step.algorithm == sim::kBounded;
}

// Whether a call of the group goes over connections: compute steps send nothing, bounded sums datagrams.
bool has_connections(const sim::WorkloadGroup& group) {
  return std::ranges::any_of(group.steps, [](const auto& s) { return s.op && !is_bounded(s); });
}

// Whether anything but datagrams is sent, where `only_datagrams` says what calls do.
bool has_connections(const SimulateOptions& o, bool only_datagrams) {
  if (!o.flows.connections.empty() || !o.job.flows.empty()) return true;
  if (o.workload.empty()) return !only_datagrams && o.matrix.empty();
  return std::ranges::any_of(o.job.groups, [](const auto& g) { return has_connections(g); }) ||
         std::ranges::any_of(o.job.background, [](const auto& b) { return b.burst_bytes > 0; });
}

// The priorities that packets have.
std::array<bool, sim::kPriorities> priorities_in_use(const SimulateOptions& o, bool only_datagrams,
                                                     bool bounded) {
  std::array<bool, sim::kPriorities> used{};
  const auto use = [&](int priority) {
    used[static_cast<std::size_t>(std::clamp(priority, 0, sim::kPriorities - 1))] = true;
  };
  const int below = o.simulation.transport.data_priority;
  const auto use_for_data = [&](int priority) {
    use(priority += below);
    for (const std::int64_t limit : o.simulation.transport.demote_bytes)
      if (limit > 0) use(++priority);
  };
  if (only_datagrams) {
    use(bounded ? wire::kOrdinary : 0);
    return used;
  }
  if (has_connections(o, only_datagrams)) use(o.simulation.transport.acknowledgement_priority);
  for (const sim::Connection& c : o.flows.connections) use_for_data(c.priority);
  for (const auto& f : o.job.flows) use_for_data(f.connection.priority);
  for (const sim::WorkloadGroup& g : o.job.groups) {
    if (has_connections(g)) use_for_data(g.priority);
    for (const sim::WorkloadStep& s : g.steps) {
      if (!is_bounded(s)) continue;
      use(wire::kOrdinary);
      if (g.queues == 1) continue;
      use(wire::kControlClass);
      use(protocol::queue_priority(s.depth, g.queues, protocol::LayerOrder::front_first));
    }
  }
  for (const sim::BackgroundTraffic& b : o.job.background)
    b.burst_bytes > 0 ? use_for_data(b.priority) : use(b.priority);
  if (o.matrix.empty() && o.workload.empty()) use_for_data(o.ranks.priority);
  return used;
}

bool some_link_leaves_a_switch(const cluster::Cluster& cluster) {
  const int workers = cluster.workers();
  return std::ranges::any_of(cluster.links, [&](const cluster::Link& l) { return l.from >= workers; });
}

// Whether routes part anywhere: at a node from which equally good ways lead on.
bool some_have_several_ways(const cluster::Cluster& cluster) {
  if (cluster.nodes.size() > kMostNodesToPlan) return true;  // too many to look at
  const cluster::Routes routes(cluster);
  const int workers = cluster.workers();
  for (int from = 0; from < workers; ++from)
    for (int to = 0; to < workers; ++to) {
      bool parts = false;
      if (from != to) routes.for_each_share(from, to, [&](int, double part) { parts = parts || part < 1; });
      if (parts) return true;
    }
  return false;
}

// What groups of a workload ask of switches for their bounded sums, and these do not do.
std::vector<std::string> idle_classes(const SimulateOptions& o, bool marks) {
  std::string queues, droppable;
  int needed = 0;
  const auto add = [](std::string& names, const sim::WorkloadGroup& g) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", g.name);
  };
  for (const sim::WorkloadGroup& g : o.job.groups) {
    if (g.queues > 1 && o.simulation.network.switch_queue.priorities <= g.queues) {
      add(queues, g);
      needed = std::max(needed, g.queues + 1);
    }
    if (g.droppable > 0 && !marks) add(droppable, g);
  }
  std::vector<std::string> notes;
  if (!queues.empty())
    notes.push_back(fmt::format(
        "--workload: queues of {}: with fewer than {} --priorities, layers share a queue", queues, needed));
  if (!droppable.empty())
    notes.push_back(fmt::format(
        "--workload: droppable of {}: no queue marks, so none drops these before others", droppable));
  return notes;
}

std::string full_before(const char* option, const sim::QueuePolicy& queue) {
  return fmt::format("{}: the queue is full before, at {} bytes", option, queue.limit_bytes);
}

}  // namespace

std::vector<std::string> idle_network_options(const SimulateRequest& request,
                                              const sim::NetworkOptions& network) {
  std::vector<std::string> notes;
  const sim::QueuePolicy& queue = network.switch_queue;
  const std::int64_t full =
      queue.limit_bytes > 0 ? queue.limit_bytes : std::numeric_limits<std::int64_t>::max();
  if (given(request, "mark") && !request.red.empty()) notes.emplace_back("--mark: --red takes its place");
  if (queue.mark_bytes >= full) notes.push_back(full_before("--mark", queue));
  if (queue.red.least_bytes >= full) notes.push_back(full_before("--red", queue));
  int limits = 0;
  for (int p = 0; p < sim::kPriorities; ++p)
    if (queue.class_limit_bytes[static_cast<std::size_t>(p)] > 0) limits = p + 1;
  if (queue.priorities > 1 && limits > queue.priorities)
    notes.push_back(
        fmt::format("--class-limits: {} limits for {} priorities: packets of priority {} and above wait in "
                    "the last queue",
                    limits, queue.priorities, queue.priorities - 1));
  return notes;
}

std::vector<std::string> idle_options(const SimulateRequest& request, const SimulateOptions& o) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& options, const std::string& why) {
    if (!options.empty()) notes.push_back(options + ": " + why);
  };
  const sim::QueuePolicy& queue = o.simulation.network.switch_queue;
  const bool marks = queue.mark_bytes > 0 || queue.mark_by_delay || queue.red.most_bytes > 0;
  const bool pulled = o.simulation.transport.kind == sim::TransportKind::pulled;

  const bool flows = !request.matrix.empty() || !request.flows.empty();
  const bool calls = !flows && request.workload.empty();
  if (calls && o.perf.op == Collective::barrier)
    note(those_given(request, {"bytes", "factor", "type"}), "a barrier moves no data");
  else if (calls && !has_range(request.bytes))
    note(those_given(request, {"factor"}), "there is no range in --bytes " + request.bytes);
  if (flows) note(those_given(request, {"processors"}), "flows cost no processor, only calls do");
  if (flows)
    note(those_given(request, {"pacing"}), "flows have no plan, only calls do");
  else if (o.simulation.transport.kind != sim::TransportKind::dctcp)
    note(those_given(request, {"pacing"}),
         (request.fluid ? "--fluid" : request.transport) + " has rates of its own");
  const auto all_are = [&](std::initializer_list<std::string_view> names) {
    return calls && std::ranges::all_of(o.algorithms, [&](const std::string& algorithm) {
             return std::ranges::find(names, algorithm) != names.end();
           });
  };
  if (all_are({kBySwitch}))
    note(those_given(request, {"mark", "red"}), "datagrams have windows of their own");
  const bool datagrams = all_are({kBySwitch, kBounded});
  if (datagrams)
    note(those_given(request, {"window", "most-window", "ack-every", "least-rto", "pacing"}),
         "datagrams have windows of their own");
  const bool by_switch = calls && std::ranges::find(o.algorithms, kBySwitch) != o.algorithms.end();
  if (!by_switch)
    note(those_given(request, {"sparse-density", "sparse-run", "sparse-as", "overlap"}),
         "only --algo switch sums what is sparse");
  else if (o.sparse.density >= 1)
    note(those_given(request, {"sparse-run", "overlap"}), "with --sparse-density 1 nothing is zero");
  if (!by_switch) note(those_given(request, {"switch-format"}), "only --algo switch has formats of float");
  const bool bounded = calls && std::ranges::find(o.algorithms, kBounded) != o.algorithms.end();
  if (!bounded && !by_switch)
    note(those_given(request, {"may-lose"}), "only --algo bounded and switch lose a part");
  if (!bounded)
    note(those_given(request, {"may-lose-sender", "may-lose-call", "droppable", "keep-important"}),
         by_switch ? "only --algo bounded has it" : "only --algo bounded loses a part");
  else if (o.may_lose <= 0)
    note(those_given(request, {"droppable", "keep-important"}), "with --may-lose 0 nothing may be lost");
  else if (!marks)
    note(those_given(request, {"droppable"}), "no queue marks, so none drops these before others");
  if (!bounded) note(those_given(request, {"servers"}), "only --algo bounded has servers");
  if (!bounded)
    note(those_given(request, {"paths"}), "only --algo bounded chooses among paths");
  else if (o.simulation.transport.spray)
    note(those_given(request, {"paths"}), "with --routing spray each packet takes a way of its own");
  std::ranges::copy(idle_classes(o, marks), std::back_inserter(notes));
  if (given(request, "routing") && o.simulation.transport.spray && !some_have_several_ways(o.cluster))
    note(those_given(request, {"routing"}), "between any two hosts there is one path");
  if (request.fluid) {
    const char* const routing = given(request, "routing")      ? "which --routing sets"
                                : o.simulation.transport.spray ? "spray"
                                                               : "ecmp";
    note(those_given(request, {"transport"}),
         fmt::format("--fluid takes of {} only its routing, {}, and how often it acknowledges",
                     request.transport, routing));
    note(those_given(request, {"queue", "mark", "red", "priorities", "class-limits", "demote", "trim", "loss",
                               "bit-errors", "burst-loss", "duplicate", "damage", "reorder", "window",
                               "most-window", "least-rto"}),
         "--fluid has neither packets nor queues");
    return notes;
  }
  if (!some_link_leaves_a_switch(o.cluster)) {
    note(those_given(request, {"queue", "mark", "red", "class-limits", "demote", "trim"}),
         "no link leaves a switch, and a host holds its packets back");
    return notes;
  }
  if (!request.red.empty()) note(those_given(request, {"mark"}), "--red takes its place");
  if (datagrams) {
    note(those_given(request, {"priorities", "demote", "trim"}),
         "all datagrams have one priority, and none is trimmed");
    if (queue.least_left_first)
      note(those_given(request, {"transport"}),
           "datagrams do not say how much is left: they go first, in the order in which they come");
  } else if (pulled) {
    const std::string& name = request.transport;
    note(those_given(request, {"mark", "red"}), name + " does not react to marks");
    note(those_given(request, {"most-window"}), name + " has no window that grows");
    note(those_given(request, {"ack-every"}), name + " answers each packet");
    if (!queue.trim)
      note(those_given(request, {"priorities", "queue"}),
           "without trimming, which needs two priorities and a queue with a limit, " + name +
               " waits for timers where a queue is full");
  } else if (queue.least_left_first) {
    note(those_given(request, {"mark", "red"}), request.transport + " does not react to marks");
    note(those_given(request, {"ack-every"}), request.transport + " answers each packet");
  }
  if (!(pulled && !datagrams) && !queue.least_left_first && given(request, "mark") && queue.limit_bytes > 0 &&
      queue.mark_bytes >= queue.limit_bytes)
    note("--mark", fmt::format("the queue is full before, at {} bytes", queue.limit_bytes));
  const auto used = priorities_in_use(o, datagrams, bounded);
  const bool one_priority = std::ranges::count(used, true) == 1;
  if (!datagrams && !has_connections(o, datagrams)) {
    if (one_priority) note(those_given(request, {"priorities"}), "all datagrams have one priority");
    note(those_given(request, {"demote", "trim"}), "datagrams are neither demoted nor trimmed");
  } else if (!datagrams && one_priority) {
    note(those_given(request, {"priorities", "trim"}),
         "data and answers have the same priority, and with it one queue: give flows a priority (prio=1 in "
         "--flows, prio 1 in a matrix, priority: 1 in a workload), or take --transport ndp");
  }
  for (std::size_t p = 0; p < used.size(); ++p)
    if (queue.class_limit_bytes[p] > 0 && !used[p])
      note(those_given(request, {"class-limits"}), fmt::format("no packet has priority {}", p));
  return notes;
}

}  // namespace talweg::study
