#include "chaos/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace talweg::chaos {

namespace {

constexpr Picoseconds kTick = 100 * kMillisecond;
constexpr std::uint64_t kTicksPerLook = 10;  // hosts are looked for once a second
// Everything that was called has ended by then, or something hangs: after every pause and deadline, or, where
// all must end well, after the last cut has been mended and the transport's timers have run down.
constexpr Picoseconds kLongest = 1500 * kSecond;
constexpr Picoseconds kLongestOnceHealed = 300 * kSecond;

sim::SimulationOptions options_for(const Scenario& scenario, Mutation mutation) {
  sim::SimulationOptions options = scenario.simulation;
  // Where nearly half of all packets are lost, some must still get through before a host counts as dead.
  options.transport.most_rto = Nanoseconds{500'000'000};
  if (mutation == Mutation::silent_timer)
    options.transport.first_rto = options.transport.least_rto = options.transport.most_rto =
        Nanoseconds{3'000'000'000'000};
  return options;
}

}  // namespace

World::World(Scenario scenario, const WorldOptions& options)
    : scenario_(std::move(scenario)),
      options_(options),
      random_(scenario_.seed, 78),
      simulation_(scenario_.cluster, options_for(scenario_, options.mutation)),
      cuts_(static_cast<std::size_t>(scenario_.nodes() * scenario_.nodes())),
      struck_(scenario_.faults.size()) {
  simulation_.set_client(this);
  const auto records_for = [](int group, const std::vector<ScriptedCall>& calls, std::size_t members) {
    std::vector<std::vector<Record>> list(members);
    for (std::size_t m = 0; m < members; ++m)
      for (const ScriptedCall& call : calls) {
        Record& record = list[m].emplace_back();
        record.script = &call;
        record.rank = static_cast<int>(m);
        record.group = group;
      }
    return list;
  };
  for (std::size_t g = 0; g < scenario_.groups.size(); ++g)
    records_.push_back(
        records_for(static_cast<int>(g), scenario_.groups[g].calls, scenario_.groups[g].members.size()));
  records_.push_back(records_for(-1, scenario_.again, static_cast<std::size_t>(scenario_.ranks)));
}

World::~World() = default;

void World::problem(const std::string& text) {
  if (problems_.size() < 20) problems_.push_back(text);
  if (tracing()) trace("PROBLEM: " + text);
}

void World::trace(const std::string& text) {
  fmt::print("{:12.6f} ms  {}\n", static_cast<double>(now()) / 1e9, text);
}

void World::after(Picoseconds delay, std::function<void()> call) {
  simulation_.at(now() + delay, std::move(call));
}

std::vector<Record>& World::records(int group, int member) {
  return records_[static_cast<std::size_t>(group)][static_cast<std::size_t>(member)];
}

// New connections between all.
void World::connect() {
  for (int a = 0; a < scenario_.nodes(); ++a)
    for (int b = 0; b < scenario_.nodes(); ++b) {
      if (a == b) continue;
      for (int s = 0; s < scenario_.streams; ++s) {
        pipes_.push_back(std::make_unique<Pipe>(*this, node(a), node(b), s));
        Pipe* const pipe = pipes_.back().get();
        by_flow_.resize(pipe->flow + 1);
        by_flow_[pipe->flow] = pipe;
        node(a).peer(b).out.push_back(pipe);
        node(b).peer(a).in.push_back(pipe);
        node(a).peer(b).gone = false;
      }
    }
}

void World::run() {
  for (int r = 0; r < scenario_.nodes(); ++r) nodes_.push_back(std::make_unique<Node>(*this, r));
  connect();
  for (std::size_t g = 0; g < scenario_.groups.size(); ++g) {
    if (scenario_.groups[g].later) continue;
    const auto& members = scenario_.groups[g].members;
    std::vector<int> all = members;
    if (g == 0 && scenario_.helpers > 0) {
      all.push_back(scenario_.ranks);
      node(scenario_.ranks).join(0, id_of(0), all, none_);
    }
    for (std::size_t m = 0; m < members.size(); ++m)
      node(members[m]).join(static_cast<int>(g), id_of(static_cast<int>(g)), all, records_[g][m]);
  }
  for (int r = 0; r < scenario_.ranks; ++r) node(r).begin(scenario_.begins[static_cast<std::size_t>(r)]);
  for (std::size_t f = 0; f < scenario_.faults.size(); ++f)
    if (scenario_.faults[f].when != sim::kNever)
      simulation_.at(scenario_.faults[f].when, [this, f] { strike(f); });
  tick();
  const bool ended = run_until_finished(kLongest);
  simulation_.run(now() + kSecond / 10);  // what is still on the way
  check_outcomes();
  if (ended) check_memory();
  if (ended && problems_.empty() && !scenario_.again.empty()) heal();
  count_transport();
  simulation_.set_client(nullptr);
}

bool World::run_until_finished(Picoseconds horizon) {
  simulation_.run(now() + horizon);
  std::string waiting;
  bool all = true;
  for (const auto& n : nodes_)
    if (!n->finished()) {
      all = false;
      waiting += fmt::format("\n  rank {}{}:{}", n->rank(), n->paused() ? " (paused)" : "", n->waiting());
    }
  if (!all)
    problem(fmt::format("{} after {} s:{}", healed_ ? "healed, but no progress" : "it hangs", now() / kSecond,
                        waiting));
  return all;
}

void World::check_finished() {
  if (std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n->finished(); }))
    simulation_.stop();
}

void World::tick() {
  ++ticks_;
  for (const auto& n : nodes_) n->tick(ticks_ % kTicksPerLook == 0);
  for (const auto& group : records_)
    for (const auto& member : group)
      for (const Record& record : member)
        if (record.started && !record.done && !record.lost && now() > record.deadline + 3 * kTick) {
          const int rank = record.group < 0 ? record.rank
                                            : scenario_.groups[static_cast<std::size_t>(record.group)]
                                                  .members[static_cast<std::size_t>(record.rank)];
          if (node(rank).alive() && !node(rank).paused() && mutation() != Mutation::no_deadlines)
            problem(fmt::format("rank {}: an operation outlived its deadline", rank));
        }
  after(kTick, [this] { tick(); });
}

void World::on_delivered(sim::FlowId flow, std::int64_t bytes, Picoseconds) {
  by_flow_[flow]->on_delivered(bytes);
}
void World::on_writable(sim::FlowId flow, Picoseconds) {
  by_flow_[flow]->from.wake();
}

void World::on_frame(int to, const wire::Header& header) {
  ++frames_;
  digest_ = (digest_ ^ static_cast<std::uint64_t>(now()) ^ header.header_checksum) * 0x9E3779B97F4A7C15 +
            static_cast<std::uint64_t>(to);
  for (std::size_t f = 0; f < struck_.size(); ++f)
    if (!struck_[f] && frames_ >= scenario_.faults[f].after_frames) after(0, [this, f] { strike(f); });
}

void World::form(int group, Node& owner) {
  const Group& g = scenario_.groups[static_cast<std::size_t>(group)];
  const auto at = std::find(g.members.begin(), g.members.end(), owner.rank());
  if (at == g.members.end()) return;
  marks_.hit(Mark::regrouped);
  owner.replace(g.closes, group, g.members, records(group, static_cast<int>(at - g.members.begin())));
}

bool World::damages(const Pipe& pipe) {
  if (((damaging_ >> pipe.from.rank()) & 1) == 0 || ((damaging_to_ >> pipe.to.rank()) & 1) == 0) return false;
  damaging_ = 0;
  return true;
}

void World::mutate(const Pipe&, std::vector<std::byte>& bytes, std::size_t begin) {
  if (mutation() != Mutation::duplicate_frames && mutation() != Mutation::lose_frames) return;
  if (random_.below(40) != 0) return;
  if (mutation() == Mutation::lose_frames) {
    bytes.resize(begin);
    return;
  }
  const std::vector<std::byte> again(bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.end());
  bytes.insert(bytes.end(), again.begin(), again.end());
}

void World::strike(std::size_t f) {
  if (struck_[f] || healed_) return;
  struck_[f] = true;
  const Fault& fault = scenario_.faults[f];
  if (tracing()) trace(to_string(fault));
  int first = 0;
  while (((fault.who >> first) & 1) == 0) ++first;
  Node& victim = node(first);
  if (victim.helps() && victim.alive() && helper_lost_ == 0 &&
      (fault.kind == FaultKind::crash_process || fault.kind == FaultKind::crash_host))
    helper_lost_ = now();
  switch (fault.kind) {
    case FaultKind::cut:
      marks_.hit(fault.both ? Mark::cut_both_ways : Mark::cut_one_way);
      cut(fault.who, fault.whom, 1);
      if (fault.both) cut(fault.whom, fault.who, 1);
      after(fault.lasts, [this, &fault] {
        if (healed_) return;
        cut(fault.who, fault.whom, -1);
        if (fault.both) cut(fault.whom, fault.who, -1);
        if (tracing()) trace("mended: " + to_string(fault));
      });
      break;
    case FaultKind::pause:
      marks_.hit(Mark::pause);
      victim.pause(true);
      after(fault.lasts, [&victim] { victim.pause(false); });
      break;
    case FaultKind::crash_process:
    case FaultKind::leave: {
      if (!victim.alive() || victim.paused()) break;
      const bool crash = fault.kind == FaultKind::crash_process;
      marks_.hit(crash ? Mark::process_crash : Mark::left);
      crash ? victim.crash() : victim.leave();
      const bool reset = crash && random_.below(2) == 0;
      for (int r = 0; r < scenario_.nodes(); ++r)
        if (r != first) tell_closed(first, r, reset);
      break;
    }
    case FaultKind::crash_host:
      if (!victim.alive()) break;
      marks_.hit(Mark::host_crash);
      victim.crash();
      cut(fault.who, ~fault.who, 1);
      cut(~fault.who, fault.who, 1);
      break;
    case FaultKind::damage:
      damaging_ |= fault.who;
      damaging_to_ |= fault.whom;
      break;
    case FaultKind::abort:
      marks_.hit(Mark::aborted);
      victim.abort();
      break;
  }
  check_finished();
}

void World::cut(unsigned who, unsigned whom, int change) {
  const int n = scenario_.nodes();
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < n; ++b)
      if (((who >> a) & 1) != 0 && ((whom >> b) & 1) != 0 && a != b)
        cuts_[static_cast<std::size_t>(a * n + b)] += change;
  apply_cuts();
}

bool World::reaches(int from, int to) const {
  return cuts_[static_cast<std::size_t>(from * scenario_.nodes() + to)] == 0;
}

// Where pairs have no link of their own, a rank is cut off from all others or from none.
void World::apply_cuts() {
  const int n = scenario_.nodes();
  for (std::size_t l = 0; l < scenario_.cluster.links.size(); ++l) {
    const cluster::Link& link = scenario_.cluster.links[l];
    bool passes = link.from >= n && link.to >= n;
    for (int r = 0; r < n && !passes; ++r) {
      if (link.from < n && link.to < n)
        passes = reaches(link.from, link.to);
      else if (link.from < n)
        passes = r != link.from && reaches(link.from, r);
      else
        passes = r != link.to && reaches(r, link.to);
    }
    sim::LossModel loss = scenario_.simulation.network.loss;
    if (!passes) loss.loss = 1;
    simulation_.network().set_loss(static_cast<int>(l), loss);
  }
}

void World::tell_closed(int from, int to, bool reset) {
  after(kMillisecond, [this, from, to, reset, epoch = epoch_] {
    if (epoch != epoch_ || !node(to).alive()) return;
    if (node(to).paused() || !reaches(from, to)) {
      tell_closed(from, to, reset);
      return;
    }
    if (reset) {
      node(to).on_reset(from);
    } else {
      for (Pipe* pipe : node(to).peer(from).in) pipe->end_known = true;
      node(to).wake();
    }
  });
}

// All that was wrong is mended, every rank begins anew, in a new group over new connections; what is left of
// the old ones is still on the way.
void World::heal() {
  healed_ = true;
  ++epoch_;
  std::fill(cuts_.begin(), cuts_.end(), 0);
  apply_cuts();
  if (tracing()) trace("healed");
  for (auto& n : nodes_) n->crash();
  for (auto& n : nodes_) retired_.push_back(std::move(n));
  nodes_.clear();
  for (auto& pipe : pipes_) pipe->stale = true;
  damaging_ = 0;
  std::vector<int> members;
  for (int r = 0; r < scenario_.nodes(); ++r) {
    nodes_.push_back(std::make_unique<Node>(*this, r));
    if (r < scenario_.ranks) members.push_back(r);
  }
  connect();
  for (int r = 0; r < scenario_.ranks; ++r) {
    node(r).join(-1, id_of(-1), members, records_.back()[static_cast<std::size_t>(r)]);
    node(r).begin(0);
  }
  if (!run_until_finished(kLongestOnceHealed)) return;
  for (const auto& member : records_.back())
    for (const Record& record : member) {
      if (record.concerns_rank() && !record.outcome.ok)
        problem(fmt::format("healed, but rank {}: {}", record.rank, record.outcome.text));
      check_record(record);
    }
  check_memory();
  if (problems_.empty()) marks_.hit(Mark::healed);
}

void World::check_outcomes() {
  const bool fault = !scenario_.faults.empty();
  const bool impatient = any_call(scenario_, [](const ScriptedCall& c) { return c.impatient >= 0; });
  const bool odd = any_call(scenario_, [](const ScriptedCall& c) { return c.odd >= 0; });
  const bool dies = has(scenario_, FaultKind::crash_process) || has(scenario_, FaultKind::crash_host) ||
                    has(scenario_, FaultKind::leave) || has(scenario_, FaultKind::damage) ||
                    (scenario_.helpers > 0 && has(scenario_, FaultKind::abort)) ||
                    (has(scenario_, FaultKind::cut) && !scenario_.all_must_end_well);
  const bool others_than_leaving = std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                                               [](const Fault& f) { return f.kind != FaultKind::leave; });
  const bool any_source = any_call(scenario_, [](const ScriptedCall& c) { return c.any_source; });
  // The group goes on without it. (Where it only stands still, ranks wait for those that wait for it.)
  const unsigned helper = scenario_.helpers > 0 ? 1U << scenario_.ranks : 0;
  const bool spared =
      !impatient && !odd && fault &&
      std::all_of(scenario_.faults.begin(), scenario_.faults.end(), [&](const Fault& f) {
        return f.who == helper && (f.kind == FaultKind::crash_process || f.kind == FaultKind::crash_host ||
                                   f.kind == FaultKind::leave || f.kind == FaultKind::abort);
      });
  const auto possible = [&](ErrorCode code) {
    if (scenario_.all_must_end_well) return false;
    switch (code) {
      case ErrorCode::timeout:
        // Who waits for a rank that leaves is told; who waits for anybody cannot be.
        return impatient || others_than_leaving || (fault && any_source);
      case ErrorCode::peer_failed:
        return dies;
      case ErrorCode::aborted:
        return fault || impatient;
      case ErrorCode::mismatch:
        return odd;
      case ErrorCode::corrupted:
        return has(scenario_, FaultKind::damage);
      default:
        return false;
    }
  };
  for (std::size_t g = 0; g < scenario_.groups.size(); ++g) {
    bool disagreed = false;
    for (std::size_t c = 0; c < scenario_.groups[g].calls.size(); ++c) {
      const ScriptedCall& script = scenario_.groups[g].calls[c];
      const std::vector<std::int32_t>* bits = nullptr;  // of a rank on which it ended well
      std::size_t well = 0;
      std::size_t badly = 0;
      std::size_t mismatched = 0;
      for (const auto& member : records_[g]) {
        const Record& record = member[c];
        const std::string what = fmt::format("group {} rank {} call {} ({} by {})", g, record.rank, c,
                                             name(script.call.request.op), script.call.planner);
        if (!record.concerns_rank() || record.lost || !record.started || !record.done) continue;
        const protocol::Outcome& outcome = record.outcome;
        (outcome.ok ? well : badly)++;
        mismatched += !outcome.ok && outcome.code == ErrorCode::mismatch;
        check_record(record);
        count_helped(record);
        if (outcome.ok && script.rounds) {
          if (bits == nullptr) bits = &record.buffers.out;
          if (*bits != record.buffers.out) problem(what + ": its sum has other bits on other ranks");
          marks_.hit(Mark::same_bits, record.buffers.out.size());
        }
        if (outcome.ok && script.odd >= 0) problem(what + ": ended well though ranks disagree");
        if (outcome.ok) continue;
        if (!possible(outcome.code)) problem(what + ": " + outcome.text);
        if (spared && !script.helped) problem(what + ": only the aggregator was struck: " + outcome.text);
        if (outcome.text.empty() || outcome.text.find('\n') != std::string::npos)
          problem(what + ": an error without a line that says what happened");
        if (!fault && !impatient && script.odd < 0)
          problem(what + ": failed though nothing happened to it: " + outcome.text);
        count_outcome(record);
      }
      if (well > 0 && badly > 0) marks_.hit(Mark::half_ended);
      if (badly == 0 && well > 0 && disagreed) marks_.hit(Mark::usable_after_mismatch);
      if (script.odd < 0) continue;
      disagreed = true;
      if (well == 0 && mismatched > 1 && mismatched == badly) marks_.hit(Mark::mismatch);
      if (!fault && !impatient && mismatched != badly)
        problem(fmt::format("group {} call {}: not every rank was told of the mismatch", g, c));
    }
  }
}

void World::count_helped(const Record& record) {
  if (scenario_.helpers == 0 || record.group != 0) return;
  const bool after = helper_lost_ > 0 && record.deadline - scenario_.patience > helper_lost_;
  if (record.script->helped) {
    if (record.outcome.ok) marks_.hit(Mark::helped);
    if (record.outcome.code == ErrorCode::peer_failed &&
        record.outcome.text.find("aggregator agg") != std::string::npos)
      marks_.hit(Mark::helper_lost);
  } else if (record.outcome.ok && after) {
    marks_.hit(Mark::helper_spared);
  }
}

void World::count_outcome(const Record& record) {
  const std::string& text = record.outcome.text;
  const auto says = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  const bool own = record.group < 0 || says(fmt::format("on rank {} ", record.rank));
  if (record.outcome.code == ErrorCode::timeout) marks_.hit(own ? Mark::timeout : Mark::timeout_told);
  if (says("noticed by")) marks_.hit(Mark::noticed_by_another);
  if (says("has left the group")) marks_.hit(Mark::left_failed);
  if (says("has given up sending")) marks_.hit(Mark::given_up);
}

void World::check_record(const Record& record) {
  const protocol::Buffers& b = record.buffers;
  const auto complain = [&](const char* what) {
    problem(fmt::format("group {} rank {} call #{} ({} by {}): {}", record.group, record.rank,
                        record.script->number, name(record.script->call.request.op),
                        record.script->call.planner, what));
  };
  if (!record.started || !record.done) return;
  const protocol::Outcome& outcome = record.outcome;
  if (b.out != record.after) complain("its memory was written to after it had ended");
  if (outcome.ok && b.out != b.expected && !record.script->rounds) complain("a wrong result");
  if (!outcome.ok && outcome.code == ErrorCode::mismatch && record.after != record.before)
    complain("ranks disagree, and yet its output was written");
  if (outcome.ok && record.script->message && record.rank == record.script->destination) {
    marks_.hit(record.script->any_source ? Mark::message_any_source : Mark::message);
    if (outcome.source != record.script->source) complain("a message from somebody else");
  }
}

void World::check_memory() {
  for (const auto& n : nodes_) {
    if (n->in_flight() > 0) problem(fmt::format("rank {} has operations left over", n->rank()));
    if (n->pool().bytes_in_use() > 0 && n->alive())
      problem(fmt::format("rank {} has lost {} bytes of buffers", n->rank(), n->pool().bytes_in_use()));
    if (n->pool().peak_bytes() > n->most_memory())
      problem(fmt::format("rank {} took {} bytes of buffers, at most {} were to be expected", n->rank(),
                          n->pool().peak_bytes(), n->most_memory()));
  }
}

void World::count_transport() {
  for (sim::FlowId flow = 0; flow < simulation_.transport().flows(); ++flow) {
    const sim::FlowCounters counters = simulation_.transport().counters(flow);
    marks_.hit(Mark::retransmission, counters.retransmissions);
    marks_.hit(Mark::transport_timeout, counters.timeouts);
  }
  for (std::size_t l = 0; l < scenario_.cluster.links.size(); ++l)
    for (const std::uint64_t dropped : simulation_.network().counters(static_cast<int>(l)).dropped)
      marks_.hit(Mark::queue_overflow, dropped);
}

}  // namespace talweg::chaos
