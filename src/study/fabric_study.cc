#include "study/fabric_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/at.h"
#include "base/fail.h"
#include "base/printable.h"
#include "steer/class_checks.h"
#include "steer/load_checks.h"
#include "study/fabric_meter.h"
#include "wire/datagram.h"

namespace talweg::study {
namespace {

using Clock = std::chrono::steady_clock;
using steer::FabricCheck;
using steer::LoadSeen;

constexpr int kMostFilled = 8;  // hosts, unless all pairs are asked for
// Of what a sender's own link takes: below that, nothing queues at its own card.
constexpr double kBelowOwnLink = 0.8;
constexpr double kAboveOwnLink = 1.5;  // of two hosts, where there is no other queue
constexpr int kSenders = 2, kMoreSenders = 8;
// Where senders did not begin together, as a word between them was lost, or where nothing overflowed, as
// their hosts were too busy.
constexpr int kMostAgain = 3;
constexpr std::int64_t kIdleNs = 30'000'000;
constexpr std::int64_t kLeastLoadNs = 80'000'000, kMostLoadNs = 400'000'000;
// What is to queue up: as much as says that nothing is marked, and as much again.
constexpr double kQueueBits = 8 * 4 * steer::kKeptBytes;
constexpr const char* kLoopback = "127.0.0.1";  // for a rank that is alone
constexpr std::chrono::minutes kPatience(30);   // of ranks that have nothing to do

// Control, layers (protocol::queue_priority), and all that has no class: the most urgent first.
std::vector<int> priorities_of(int queues) {
  std::vector<int> all{0};
  for (int p = 1; queues > 1 && p <= queues; ++p) all.push_back(p);
  if (queues < wire::kOrdinary) all.push_back(wire::kOrdinary);
  return all;
}

class FabricStudy {
 public:
  FabricStudy(group::GroupImpl& group, Group& hosts, const FabricOptions& options)
      : hosts_(hosts),
        options_(options),
        meter_(hosts, group.address().empty() ? kLoopback : group.address(), group.encrypts()) {
    for (int h = 0; h < size(); ++h) {
      const std::string host = hosts.host_of(h);
      result_.host_names.push_back(host.substr(0, host.find(' ')));
    }
    number_namesakes();
    rates_.resize(at(size()));
  }

  FabricResult run() {
    const auto begin = Clock::now();
    announce();
    const std::vector<steer::HostSeen> abilities = meter_.abilities();
    for (int h = 0; h < size(); ++h) add(steer::check_host(abilities[at(h)]), -1, h);
    look_at_classes();
    if (options_.load) look_at_load();
    std::ranges::stable_sort(result_.checks, {}, [](const FabricCheck& check) {
      return std::ranges::find(steer::kFabricChecks, check.what) - steer::kFabricChecks.begin();
    });
    result_.bytes = meter_.bytes_sent();
    hosts_.all_reduce(&result_.bytes, &result_.bytes, 1, DataType::i64, ReduceOp::sum);
    result_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return std::move(result_);
  }

 private:
  int size() const { return hosts_.size(); }
  void say(const std::string& line) const {
    if (hosts_.rank() == 0 && options_.progress) options_.progress(line);
  }
  void add(FabricCheck check, int from, int to) {
    check.from = from;
    check.to = to;
    result_.checks.push_back(std::move(check));
  }
  // Ranks of one machine that count as hosts have one name.
  void number_namesakes() {
    const std::vector<std::string> plain = result_.host_names;
    for (std::size_t h = 0; h < plain.size(); ++h)
      if (std::ranges::count(plain, plain[h]) > 1) result_.host_names[h] += fmt::format("#{}", h);
  }

  bool fills() const { return options_.load && size() > 1; }
  int filled_hosts() const { return options_.all_pairs ? size() : std::min(size(), kMostFilled); }

  void announce() const {
    if (size() == 1) {
      say("one host: what it does with datagrams to itself");
      return;
    }
    say(fmt::format("{} hosts: {} pairs, {}", size(), size() * (options_.all_pairs ? size() - 1 : 1),
                    options_.all_pairs || size() == 2 ? "all that there are" : "each host to the next"));
    if (fills())
      say(fmt::format("fills the links into {} of them, one after the other, {} times for {} to {} ms each",
                      filled_hosts(), priorities_of(options_.queues).size() - 1, kLeastLoadNs / 1'000'000,
                      kMostLoadNs / 1'000'000));
  }

  void look_at_classes() {
    const int last = options_.all_pairs ? size() - 1 : 1;
    for (int shift = 1; shift <= std::max(1, last); ++shift) {
      const std::vector<steer::ClassesSeen> all = meter_.classes(shift);
      for (int from = 0; from < size(); ++from) {
        const int to = (from + shift) % size();
        for (const auto& check : {steer::check_dscp, steer::check_ecn, steer::check_mtu})
          add(check(all[at(to)]), from, to);
      }
    }
  }

  void look_at_load() {
    if (size() == 1) {
      for (const char* what : {"marks", "selective", "priorities"})
        add({what, steer::Verdict::cannot_tell, "all ranks are on one host: there is no link to fill", ""},
            -1, 0);
      return;
    }
    const std::vector<int> priorities = priorities_of(options_.queues);
    const bool own_queue = size() == 2;
    for (int i = 0; i < filled_hosts(); ++i) {
      const int to = i * size() / filled_hosts();
      const std::vector<LoadSeen> loads = fill(to, priorities);
      add(steer::check_marks(loads, own_queue), -1, to);
      add(steer::check_selective(loads, own_queue), -1, to);
      add(steer::check_priorities(loads, priorities, own_queue), -1, to);
      result_.loads.insert(result_.loads.end(), loads.begin(), loads.end());
      say(fmt::format("the link into {} was filled; senders: {}", printable(result_.host_names[at(to)]),
                      loads.front().senders));
    }
  }

  // Loads of all priorities but the first, which is for control and little.
  std::vector<LoadSeen> fill(int to, const std::vector<int>& priorities) {
    int senders = std::min(kSenders, size() - 1);
    std::vector<LoadSeen> loads;
    for (auto p = priorities.rbegin(); p + 1 != priorities.rend(); ++p) {
      loads.push_back(together(load_of(to, senders, *p, priorities)));
      const int more = std::min(kMoreSenders, size() - 1);
      if (loads.size() > 1 || more == senders || steer::was_full(loads[0])) continue;
      senders = more;
      loads[0] = together(load_of(to, senders, *p, priorities));
    }
    return loads;
  }

  LoadSeen together(const FabricMeter::Load& load) {
    LoadSeen seen = meter_.load(load);
    for (int again = 0; again < kMostAgain && steer::was_disturbed(seen); ++again) seen = meter_.load(load);
    return seen;
  }

  FabricMeter::Load load_of(int to, int senders, int priority, const std::vector<int>& priorities) {
    FabricMeter::Load load;
    load.to = to;
    load.priority = priority;
    load.priorities = priorities;
    load.idle_ns = kIdleNs;
    double all = 0, slowest = 0;
    for (int s = 1; s <= senders; ++s) {
      const int from = (to + size() - s) % size();
      const double rate = std::max(rate_of(from), 1e6) * (size() == 2 ? kAboveOwnLink : kBelowOwnLink);
      load.from.push_back(from);
      load.rates.push_back(rate);
      all += rate;
      slowest = s == 1 ? rate : std::min(slowest, rate);
    }
    // As if the link took what the slowest of them can send: where it takes more, the queue grows more
    // slowly.
    const double excess = std::max(all - slowest / kBelowOwnLink, slowest / 4);
    load.load_ns =
        std::clamp(static_cast<std::int64_t>(1e9 * kQueueBits / excess), kLeastLoadNs, kMostLoadNs);
    return load;
  }

  double rate_of(int from) {
    std::optional<double>& rate = rates_[at(from)];
    if (!rate) rate = meter_.rate(from);
    return *rate;
  }

  Group& hosts_;
  const FabricOptions& options_;
  FabricMeter meter_;
  FabricResult result_;
  std::vector<std::optional<double>> rates_;  // by sender, to the next host
};

}  // namespace

FabricResult study_fabric(group::GroupImpl& group, const FabricOptions& options) {
  std::vector<int> speakers;  // one of each host
  std::vector<int> known;
  for (int r = 0; r < group.size(); ++r)
    if (const int machine = group.machines()[at(r)]; std::ranges::find(known, machine) == known.end()) {
      known.push_back(machine);
      speakers.push_back(r);
    }
  FabricResult result;
  if (const std::shared_ptr<Group> hosts = group.split(speakers))
    result = FabricStudy(group, *hosts, options).run();
  group.barrier({.timeout = kPatience});
  return result;
}

std::vector<std::string> parse_expected(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (std::ranges::find(steer::kFabricChecks, name) == steer::kFabricChecks.end())
      refuse("--expect: expected some of {}, with commas, got \"{}\"", fmt::join(steer::kFabricChecks, ", "),
             name);
    names.push_back(name);
    begin = end + 1;
  }
  return names;
}

std::vector<std::string> unmet(const FabricResult& result, const std::vector<std::string>& expected) {
  std::vector<std::string> lines;
  for (const std::string& name : expected) {
    bool looked = false;
    for (const FabricCheck& check : result.checks) {
      if (check.what != name) continue;
      looked = true;
      if (check.verdict == steer::Verdict::pass) continue;
      lines.push_back(fmt::format("expected {}, {}: {}: {}", name, place_of(check, result.host_names),
                                  to_string(check.verdict), check.seen));
    }
    if (!looked) lines.push_back(fmt::format("expected {}: --no-load leaves it out", name));
  }
  return lines;
}

std::string place_of(const FabricCheck& check, const std::vector<std::string>& host_names) {
  const std::string to = printable(host_names[at(check.to)]);
  if (check.from >= 0) return fmt::format("{} -> {}", printable(host_names[at(check.from)]), to);
  return check.what == "host" ? to : fmt::format("into {}", to);
}

}  // namespace talweg::study
