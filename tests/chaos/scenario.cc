#include "chaos/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sim/topologies.h"
#include "steer/shared_plans.h"

namespace talweg::chaos {

namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed, 77) { s_.seed = seed; }

  Scenario make() {
    s_.all_must_end_well = one_in(2);
    s_.ranks = 2 + static_cast<int>(below(one_in(4) ? 7 : 4));
    s_.helpers = one_in(3) ? 1 : 0;
    make_network();
    s_.streams = 1 + static_cast<int>(below(3));
    s_.send_buffer = one_in(2) ? 256 << 10 : 1 << (10 + below(7));
    if (one_in(2)) s_.eager_budget = 1 << (10 + below(4));  // so that few bytes, too, may be too many
    s_.in_flight = 1 + static_cast<int>(below(4));
    s_.pace = one_in(3) ? 0 : static_cast<Picoseconds>(below(static_cast<std::uint64_t>(2 * kMillisecond)));
    s_.patience = s_.all_must_end_well ? 1000 * kSecond : 30 * kSecond;
    for (int r = 0; r < s_.ranks; ++r)
      s_.begins.push_back(one_in(6) ? static_cast<Picoseconds>(below(200)) * kMillisecond : 0);
    make_groups();
    if (s_.all_must_end_well) {
      for (std::uint64_t n = below(4); n > 0; --n) add_mild_fault();
    } else {
      for (std::uint64_t n = 1 + below(3); n > 0; --n) add_fault();
      for (std::uint64_t n = 1 + below(3); n > 0; --n) s_.again.push_back(call(s_.ranks));
    }
    return std::move(s_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  int node() { return static_cast<int>(below(static_cast<std::uint64_t>(s_.nodes()))); }

  void make_network() {
    constexpr double kRates[] = {1e8, 1e9, 10e9};
    const Bandwidth rate{kRates[below(3)]};
    const Nanoseconds latency{one_in(8) ? 2'000'000 : static_cast<std::int64_t>(1000 + below(50'000))};
    const sim::LinkShape link{rate, latency};
    auto& network = s_.simulation.network;
    network.seed = s_.simulation.seed = s_.seed;
    switch (below(4)) {
      case 0:
        s_.shape = "star";
        s_.cluster = sim::star(s_.nodes(), link);
        if (one_in(2)) network.switch_queue.limit_bytes = 6000 + static_cast<std::int64_t>(below(30'000));
        break;
      case 1:
        if (s_.nodes() % 2 == 0) {
          s_.shape = "leaf-spine";
          s_.cluster = sim::leaf_spine(2, s_.nodes() / 2, 2, link, link);
          s_.simulation.transport.spray = one_in(2);
          break;
        }
        [[fallthrough]];
      default:
        s_.shape = "mesh";
        s_.mesh = true;
        s_.cluster = cluster::uniform_mesh(s_.nodes(), rate, latency);
    }
    sim::LossModel& loss = network.loss;
    constexpr double kLosses[] = {0, 0, 0.001, 0.01, 0.05, 0.15, 0.3};
    loss.loss = kLosses[below(std::size(kLosses))];
    // A packet passes up to four links; 30 % is meant from end to end.
    if (!s_.mesh) loss.loss /= s_.shape == "star" ? 2 : 4;
    if (one_in(4)) {
      loss.burst_begins = 0.01;
      loss.burst_ends = 0.2;
    }
    if (one_in(2)) loss.duplicate = 0.1 * random_.uniform();
    if (one_in(2)) loss.damage = 0.1 * random_.uniform();
    if (one_in(2)) {
      loss.delay = 0.5 * random_.uniform();
      loss.most_delay = Nanoseconds{static_cast<std::int64_t>(1 + below(2'000'000))};
    }
  }

  ScriptedCall call(int size) {
    constexpr std::int64_t kMost[] = {8, 100, 400, 400, 4000, 30'000};
    ScriptedCall c;
    c.number = numbers_++;
    c.call = protocol::random_call(random_, size, kMost[below(std::size(kMost))]);
    c.rounds = c.call.request.op == Collective::all_reduce && c.call.reduction == ReduceOp::sum && one_in(2);
    return c;
  }

  // Of the first group, through its aggregator.
  ScriptedCall helped_call() {
    for (;;) {
      ScriptedCall c = call(s_.ranks);
      const forest::Planner& chain = forest::find_planner("chain");
      if (!steer::is_shared(c.call.request) || !chain.serves(c.call.request)) continue;
      c.call.planner = chain.name;
      c.helped = true;
      return c;
    }
  }

  ScriptedCall message(int size) {
    ScriptedCall c;
    c.number = numbers_++;
    c.message = true;
    c.source = static_cast<int>(below(static_cast<std::uint64_t>(size)));
    c.destination = static_cast<int>(below(static_cast<std::uint64_t>(size - 1)));
    if (c.destination >= c.source) ++c.destination;
    c.any_source = one_in(3);
    // Where nothing fails, messages may share a tag: they are received in the order in which they were sent.
    c.tag = s_.all_must_end_well && !c.any_source ? 0 : 10 + static_cast<std::uint32_t>(c.number);
    c.call.request = {
        Collective::send_recv, size, c.source, c.destination, {static_cast<std::int64_t>(below(3000))}, 4};
    c.call.priority = c.tag == 0 ? 0 : static_cast<int>(below(3));
    return c;
  }

  std::vector<ScriptedCall> calls(int size, std::uint64_t most) {
    std::vector<ScriptedCall> list;
    for (std::uint64_t n = 1 + below(most); n > 0; --n)
      list.push_back(one_in(5) ? message(size) : call(size));
    return list;
  }

  void make_groups() {
    Group all;
    for (int r = 0; r < s_.ranks; ++r) all.members.push_back(r);
    all.calls = calls(s_.ranks, 8);
    s_.led = one_in(3);
    if (s_.led) {  // the same again and again, so that there is something to change
      ScriptedCall same = call(s_.ranks);
      while (!steer::is_shared(same.call.request)) same = call(s_.ranks);
      for (std::uint64_t n = 4 + below(8); n > 0; --n) {
        same.number = numbers_++;
        all.calls.insert(all.calls.begin() + static_cast<std::ptrdiff_t>(below(all.calls.size() + 1)), same);
      }
    }
    for (std::uint64_t n = s_.helpers > 0 ? 1 + below(5) : 0; n > 0; --n)
      all.calls.insert(all.calls.begin() + static_cast<std::ptrdiff_t>(below(all.calls.size() + 1)),
                       helped_call());
    s_.groups.push_back(all);
    if (s_.ranks < 3 || one_in(2)) return;
    for (std::uint64_t n = 1 + below(2); n > 0; --n) {
      Group part;
      while (part.members.size() < 2) {
        part.members.clear();
        for (int r = 0; r < s_.ranks; ++r)
          if (one_in(2)) part.members.push_back(r);
      }
      if (one_in(2)) std::reverse(part.members.begin(), part.members.end());
      const int size = static_cast<int>(part.members.size());
      part.calls = calls(size, 4);
      s_.groups.push_back(part);
      if (one_in(2)) continue;
      part.closes = static_cast<int>(s_.groups.size()) - 1;
      part.later = true;
      part.calls = calls(size, 4);
      ScriptedCall barrier;
      barrier.number = numbers_++;
      barrier.call.request = {Collective::barrier, s_.ranks, 0, 0, {0}, 4};
      barrier.call.planner = "binomial";
      barrier.opens = static_cast<int>(s_.groups.size());
      s_.groups.push_back(part);
      auto& world = s_.groups[0].calls;
      world.insert(world.begin() + static_cast<std::ptrdiff_t>(below(world.size() + 1)), barrier);
    }
  }

  Fault fault(FaultKind kind) {
    Fault f;
    f.kind = kind;
    f.who = 1U << node();
    if (one_in(2))
      f.when = static_cast<Picoseconds>(below(static_cast<std::uint64_t>(100 * kMillisecond)));
    else
      f.after_frames = below(one_in(2) ? 30 : 400);
    f.lasts = static_cast<Picoseconds>(1 + below(one_in(3) ? 5000 : 200)) * kMillisecond;
    return f;
  }

  Fault cut() {
    Fault f = fault(FaultKind::cut);
    const unsigned all = (1U << s_.nodes()) - 1;
    if (s_.mesh && one_in(2)) f.who = 1 + static_cast<unsigned>(below(all - 1));
    f.whom = all & ~f.who;
    if (s_.mesh && one_in(3)) f.whom = 1U << lowest(f.whom);
    f.both = one_in(2);
    if (!s_.mesh && one_in(2)) std::swap(f.who, f.whom);
    return f;
  }
  static int lowest(unsigned bits) {
    int i = 0;
    while ((bits >> i & 1) == 0) ++i;
    return i;
  }

  void add_mild_fault() { s_.faults.push_back(one_in(2) ? cut() : fault(FaultKind::pause)); }

  void add_fault() {
    switch (below(11)) {
      case 0:
      case 1:
        s_.faults.push_back(fault(FaultKind::crash_process));
        break;
      case 2:
        s_.faults.push_back(fault(FaultKind::crash_host));
        break;
      case 3: {
        Fault f = cut();
        f.lasts = static_cast<Picoseconds>(10 + below(60)) * kSecond;
        s_.faults.push_back(f);
        break;
      }
      case 4: {
        Fault f = fault(FaultKind::pause);
        f.lasts = static_cast<Picoseconds>(10 + below(60)) * kSecond;
        s_.faults.push_back(f);
        break;
      }
      case 5:
        s_.faults.push_back(fault(FaultKind::leave));
        break;
      case 6: {
        Fault f = fault(FaultKind::damage);
        f.whom = ((1U << s_.nodes()) - 1) & ~f.who;
        s_.faults.push_back(f);
        break;
      }
      case 7:
        s_.faults.push_back(fault(FaultKind::abort));
        break;
      case 8:
        disagree();
        break;
      default:
        be_impatient();
        break;
    }
  }

  ScriptedCall& any_call(int& members) {
    Group& group = s_.groups[below(s_.groups.size())];
    members = static_cast<int>(group.members.size());
    return group.calls[below(group.calls.size())];
  }
  void disagree() {
    int members = 0;
    ScriptedCall& c = any_call(members);
    if (c.opens >= 0) return;
    c.odd = c.message ? (one_in(2) ? c.source : c.destination)
                      : static_cast<int>(below(static_cast<std::uint64_t>(members)));
  }
  void be_impatient() {
    int members = 0;
    ScriptedCall& c = any_call(members);
    c.impatient = c.message ? (one_in(2) ? c.source : c.destination)
                            : static_cast<int>(below(static_cast<std::uint64_t>(members)));
    c.patience = static_cast<Picoseconds>(1 + below(one_in(2) ? 20 : 500)) * kMillisecond;
    if (c.message)
      c.patience = static_cast<Picoseconds>(1 + below(one_in(2) ? 30 : 300)) * kMillisecond / 1000;
  }

  Random random_;
  Scenario s_;
  std::uint64_t numbers_ = 0;
};

}  // namespace

Scenario scenario_of(std::uint64_t seed) {
  return Maker(seed).make();
}

const char* name(FaultKind kind) {
  constexpr const char* kNames[] = {"cut",   "pause",  "crash_process", "crash_host",
                                    "leave", "damage", "abort"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const Fault& f) {
  std::string text = fmt::format("{} of {:#b}", name(f.kind), f.who);
  if (f.whom != 0) text += fmt::format(" to {:#b}{}", f.whom, f.both ? " and back" : "");
  if (f.kind == FaultKind::cut || f.kind == FaultKind::pause)
    text += fmt::format(" for {} ms", f.lasts / kMillisecond);
  return text;
}

std::string to_string(const Scenario& s) {
  const sim::LossModel& loss = s.simulation.network.loss;
  std::string text = fmt::format(
      "{} ranks{}{} on a {}, {} streams, loss {:.3f}{}, duplicates {:.2f}, damage {:.2f}, delayed {:.2f}; {} "
      "in "
      "flight; "
      "begin at {} ms\n",
      s.ranks, s.helpers > 0 ? " and an aggregator" : "", s.led ? ", led," : "", s.shape, s.streams,
      loss.loss, loss.burst_begins > 0 ? " and bursts" : "", loss.duplicate, loss.damage, loss.delay,
      s.in_flight, [&] {
        std::vector<Picoseconds> ms;
        for (const Picoseconds at : s.begins) ms.push_back(at / kMillisecond);
        return fmt::format("{}", fmt::join(ms, ", "));
      }());
  for (std::size_t g = 0; g < s.groups.size(); ++g) {
    text += fmt::format("group {} of {}:", g, fmt::join(s.groups[g].members, " "));
    for (const ScriptedCall& c : s.groups[g].calls) {
      text += fmt::format(" {}({})", c.message ? "message" : name(c.call.request.op), c.call.total());
      if (!c.message) text += "/" + (c.helped ? "aggregator" : c.call.planner);
      if (c.odd >= 0) text += fmt::format(" [{} disagrees]", c.odd);
      if (c.impatient >= 0) text += fmt::format(" [{} waits {} ms]", c.impatient, c.patience / kMillisecond);
      if (c.opens >= 0) text += fmt::format(" [opens group {}]", c.opens);
    }
    text += "\n";
  }
  for (const Fault& f : s.faults) {
    text += f.when != sim::kNever ? fmt::format("at {} ms: ", f.when / kMillisecond)
                                  : fmt::format("after {} frames: ", f.after_frames);
    text += to_string(f) + "\n";
  }
  return text;
}

}  // namespace talweg::chaos
