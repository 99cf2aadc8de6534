#include "steer/prober.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <numeric>

#include "base/at.h"
#include "base/units.h"
#include "forest/cost.h"
#include "steer/assumed_network.h"
#include "steer/flow_trial.h"
#include "steer/survey.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

constexpr std::chrono::milliseconds kLeastTime(50);
constexpr std::chrono::milliseconds kMostTime(400);
// What a trial must be long enough for: token buckets that are full, and messages enough to count.
constexpr double kBurstBytes = 256 << 10;
// A trial whose flows turn out to need this much longer than it was is run again.
constexpr double kTooShort = 1.4;
constexpr double kRoundTrips = 20;  // of a trial: the first quarter is for congestion windows to open
constexpr double kMessages = 32;    // of a flow in a trial: each costs its hosts work, and few say little
constexpr double kUnseen = 30e6;    // bit/s

constexpr std::uint32_t kPingTag = 0x7A1E'0002;
constexpr int kWarmPings = 3;
constexpr int kPings = 20;
constexpr int kLatencyLooks = 3;

// What a trial takes besides its flows; only for what is said in advance.
constexpr double kAroundTrial = 0.01;
constexpr std::chrono::seconds kBudget(10);  // for up to kBudgetHosts hosts, and in proportion beyond
constexpr int kBudgetHosts = 8;
// Of the budget: from then on nothing is repeated for the sake of confidence.
constexpr double kHurry = 0.6;

// Links are shaped, and described, by what is on the wire.
const double kPayload = forest::CostParameters{}.tcp_payload;

// A message costs its two processors that much, as planners reckon; the rest is the network. Never so little
// that hosts seem to share memory.
double network_latency_ns(double message_ns) {
  const forest::CostParameters costs;
  return std::max(message_ns - 2e9 * costs.tcp.per_batch,
                  static_cast<double>(costs.memory_latency.value) + 1000);
}

class Prober {
 public:
  Prober(Group& group, const std::vector<int>& machine_of, const ProbeOptions& options)
      : group_(group), options_(options) {
    std::map<int, int> number;
    for (std::size_t r = 0; r < machine_of.size(); ++r) {
      const auto [place, fresh] = number.emplace(machine_of[r], static_cast<int>(number.size()));
      if (fresh) {
        speaker_.push_back(static_cast<int>(r));
        const std::string host = group.host_of(static_cast<int>(r));
        layout_.host_names.push_back(host.substr(0, host.find(' ')));
      }
      layout_.host_of.push_back(place->second);
    }
    layout_.memory = kMemory;
    layout_.memory_latency = kMemoryLatency;
    hosts_ = static_cast<int>(speaker_.size());
    if (hosts_ == 1)
      throw Error(ErrorCode::invalid_argument,
                  group.size() == 1
                      ? "there is one rank: a network is measured between ranks on several hosts"
                      : fmt::format("all {} ranks are on one host, {}: there is no network to measure",
                                    group.size(), layout_.host_names[0]));
    seen_.assign(at(hosts_), std::vector<Seen>(at(hosts_)));
    out_.resize(at(hosts_));
    in_.resize(at(hosts_));
    budget_ = options.budget.count() > 0 ? options.budget
                                         : kBudget * std::max(1, (hosts_ + kBudgetHosts - 1) / kBudgetHosts);
  }

  ProbeResult probe() {
    ProbeResult result;
    const auto begin = FlowTrial::Clock::now();
    Survey survey(hosts_, {options_.confidence, SurveyOptions{}.most_repeats});
    announce();
    const auto latency = latencies();
    int done = 0;
    std::chrono::nanoseconds longer(0);  // for a trial that is run again
    while (true) {
      const Trial* trial = leads() ? survey.next() : nullptr;
      const auto duration =
          trial == nullptr ? longer : std::max(longer, duration_of(*trial, guesses(*trial)));
      const std::vector<double> rates = run(trial, duration);
      if (rates.empty()) break;
      ++done;
      const auto elapsed = FlowTrial::Clock::now() - begin;
      if (!leads()) continue;
      if (done == 1) announce_traffic(rates);
      if (done % 20 == 0)
        say(fmt::format("{} measurements, {:.1f} s", done, std::chrono::duration<double>(elapsed).count()));
      std::vector<double> reached = rates;
      for (double& rate : reached) rate = std::max(rate, 1.0);  // known to be slow
      const auto needed = duration_of(*trial, reached);
      const bool too_short = !trial->each && longer.count() == 0 && needed > kTooShort * duration;
      longer = too_short ? needed : std::chrono::nanoseconds(0);
      if (too_short) continue;
      learn(*trial, rates);
      survey.add(rates, elapsed > budget_            ? Haste::finish
                        : elapsed > kHurry * budget_ ? Haste::hurry
                                                     : Haste::none);
    }
    if (leads()) {
      result.findings = survey.findings();
      result.findings.latency_ns = latency;
      result.host_names = node_names(layout_);
      result.network = to_cluster(result.findings, layout_);
      result.network.measured = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    }
    share(result.network);
    std::int64_t bytes = bytes_;
    group_.all_reduce(&bytes, &bytes, 1, DataType::i64, ReduceOp::sum);
    result.bytes = bytes;
    result.seconds = std::chrono::duration<double>(FlowTrial::Clock::now() - begin).count();
    return result;
  }

 private:
  bool leads() const { return group_.rank() == 0; }
  void say(const std::string& line) const {
    if (leads() && options_.progress) options_.progress(line);
  }

  void announce() const {
    const int expected = Survey::expected_trials(hosts_);
    const int most = Survey::most_trials(hosts_, {options_.confidence, SurveyOptions{}.most_repeats});
    const double one = std::chrono::duration<double>(kLeastTime).count() + kAroundTrial;
    say(fmt::format(
        "{} ranks on {} hosts: {} measurements of {} ms if there is nothing but ports, at most {}; "
        "some {:.0f} s, repeats end after {:.0f} s",
        group_.size(), hosts_, expected, kLeastTime.count(), most, std::ceil(expected * one),
        kHurry * std::chrono::duration<double>(budget_).count()));
    say(fmt::format("traffic: at most {} from a host in one measurement",
                    to_string(Bytes{FlowTrial::kMostBytes})));
    if (hosts_ > Survey::kAllPairs)
      say(fmt::format("more than {} hosts: pairs are measured in a sample of rounds, at most {} flows alone",
                      Survey::kAllPairs, Survey::kMostAlone));
  }

  // At the rates of the first look.
  void announce_traffic(const std::vector<double>& rates) const {
    const double all = std::accumulate(rates.begin(), rates.end(), 0.0) / 8;
    const double time = std::chrono::duration<double>(kLeastTime).count();
    const double bytes = all * time * Survey::expected_trials(hosts_) / 2;  // half of them use one port
    say(fmt::format("at the rates of a first look that is some {:.1g} GB in all",
                    std::max(bytes, 1e6) / 1e9));
  }

  // One way, by hosts, in ns; disjoint pairs at once. All are looked at several times, and the least counts:
  // who had no processor for a while is late in all pings of one look.
  std::vector<std::vector<double>> latencies() {
    std::vector<double> sums(at(hosts_) * at(hosts_));
    for (int look = 0; look < kLatencyLooks; ++look) look_at_latencies(sums);
    group_.all_reduce(sums.data(), sums.data(), sums.size(), DataType::f64, ReduceOp::sum);
    std::vector<std::vector<double>> by_pair(at(hosts_), std::vector<double>(at(hosts_)));
    for (int a = 0; a < hosts_; ++a)
      for (int b = 0; b < hosts_; ++b) {
        const double ns = sums[at(a) * at(hosts_) + at(b)];
        longest_ns_ = std::max(longest_ns_, ns);
        if (a != b) by_pair[at(a)][at(b)] = network_latency_ns(ns);
      }
    return by_pair;
  }

  // 0: not looked at by this rank.
  void look_at_latencies(std::vector<double>& least) {
    const auto own = std::ranges::find(speaker_, group_.rank());
    const int me = own == speaker_.end() ? -1 : static_cast<int>(own - speaker_.begin());
    for (int sum = 0; sum < hosts_; ++sum) {
      group_.barrier();
      if (me < 0) continue;
      const int other = (sum - me + hosts_) % hosts_;
      if (other == me) continue;
      const double ns = ping(speaker_[at(other)], me < other);
      if (me > other) continue;
      for (double* known : {&least[at(me) * at(hosts_) + at(other)], &least[at(other) * at(hosts_) + at(me)]})
        *known = *known > 0 ? std::min(*known, ns) : ns;
    }
  }

  // Half of the quickest round trip.
  double ping(int rank, bool first) {
    double least = std::numeric_limits<double>::infinity();
    std::int64_t word = 0;
    for (int i = 0; i < kWarmPings + kPings; ++i) {
      const auto begin = FlowTrial::Clock::now();
      if (first) group_.send(&word, 1, DataType::i64, rank, kPingTag);
      group_.recv(&word, 1, DataType::i64, rank, kPingTag);
      if (!first) group_.send(&word, 1, DataType::i64, rank, kPingTag);
      const std::chrono::duration<double, std::nano> round = FlowTrial::Clock::now() - begin;
      if (i >= kWarmPings) least = std::min(least, round.count());
    }
    return least / 2;
  }

  // What this flow is likely to reach beside the others; 0: no idea. A pair that was only seen in company may
  // be faster.
  double guess(const Flow& flow, const Trial& trial) const {
    const auto share = [&](double port, const auto& same) {
      return port / static_cast<double>(std::ranges::count_if(trial.flows, same));
    };
    const double ports =
        std::min(share(out_[at(flow.from)], [&](const Flow& f) { return f.from == flow.from; }),
                 share(in_[at(flow.to)], [&](const Flow& f) { return f.to == flow.to; }));
    const Seen& pair = seen_[at(flow.from)][at(flow.to)];
    if (pair.lately <= 0) return ports;
    return std::min(pair.alone > 0 ? pair.alone : pair.lately, ports);
  }

  // By flow: where each counts, as if nothing were shared.
  std::vector<double> guesses(const Trial& trial) const {
    std::vector<double> rates;
    for (const Flow& flow : trial.flows) {
      const double alone = seen_[at(flow.from)][at(flow.to)].alone;
      rates.push_back(trial.each && alone > 0 ? alone : guess(flow, trial));
    }
    return rates;
  }

  // Of a flow's first messages; they grow. Those of a pair that nobody has seen are small: what is too large
  // takes long on a slow path. A receiver's consent to a message waits behind the flow the other way: where
  // that is about as fast, both have messages of one size, or the smaller ones would be too few in flight.
  std::size_t message_bytes(const Flow& flow, const Trial& trial, double trial_seconds) const {
    constexpr double kAboutAsFast = 4;
    const Flow back{flow.to, flow.from};
    const bool seen = seen_[at(flow.from)][at(flow.to)].lately > 0;
    double rate = seen ? guess(flow, trial) : slowest_;
    if (seen && std::ranges::find(trial.flows, back) != trial.flows.end())
      rate = std::max(rate, std::min(guess(back, trial), kAboutAsFast * rate));
    const double seconds = std::max(trial_seconds / kMessages, longest_ns_ * 1e-9);
    std::size_t bytes = MessageSizes::kLeast;
    while (bytes < MessageSizes::kMost && static_cast<double>(2 * bytes) < rate / 8 * seconds) bytes *= 2;
    return bytes;
  }

  // Long enough for the slowest of these ports, or flows, to send more than a bucket; short enough for the
  // fastest. Rates of 0 are not known.
  std::chrono::nanoseconds duration_of(const Trial& trial, const std::vector<double>& rates) const {
    std::vector<double> out(at(hosts_)), in(at(hosts_));
    for (std::size_t f = 0; f < rates.size(); ++f) {
      out[at(trial.flows[f].from)] += rates[f];
      in[at(trial.flows[f].to)] += rates[f];
    }
    double slowest = std::numeric_limits<double>::infinity();
    for (std::size_t f = 0; f < rates.size(); ++f)
      slowest = std::min(
          slowest, trial.each ? rates[f] : std::max(out[at(trial.flows[f].from)], in[at(trial.flows[f].to)]));
    const double fastest = *std::ranges::max_element(out);
    double seconds = std::chrono::duration<double>(kLeastTime).count();
    if (slowest > 0) seconds = std::max(seconds, kBurstBytes * 8 / slowest);
    seconds = std::max(seconds, kRoundTrips * 2 * longest_ns_ * 1e-9);
    seconds = std::min(seconds, std::chrono::duration<double>(kMostTime).count());
    if (fastest > 0)
      seconds = std::min(seconds, 0.8 * static_cast<double>(FlowTrial::kMostBytes) * 8 / fastest);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  }

  void learn(const Trial& trial, const std::vector<double>& rates) {
    std::vector<double> out(at(hosts_)), in(at(hosts_));
    std::vector<int> outs(at(hosts_)), ins(at(hosts_));
    for (std::size_t f = 0; f < rates.size(); ++f) {
      const Flow& flow = trial.flows[f];
      out[at(flow.from)] += rates[f];
      in[at(flow.to)] += rates[f];
      ++outs[at(flow.from)];
      ++ins[at(flow.to)];
    }
    for (std::size_t f = 0; f < rates.size(); ++f) {
      const Flow& flow = trial.flows[f];
      Seen& pair = seen_[at(flow.from)][at(flow.to)];
      pair.lately = rates[f];
      if (rates[f] > 0) slowest_ = slowest_ > 0 ? std::min(slowest_, rates[f]) : rates[f];
      if (outs[at(flow.from)] == 1 && ins[at(flow.to)] == 1) pair.alone = rates[f];
    }
    for (int h = 0; h < hosts_; ++h) {
      out_[at(h)] = std::max(out_[at(h)], out[at(h)]);
      in_[at(h)] = std::max(in_[at(h)], in[at(h)]);
    }
  }

  // Rank 0 says what runs; the others have no trial. Empty: it was the last one.
  std::vector<double> run(const Trial* trial, std::chrono::nanoseconds duration) {
    constexpr std::size_t kHead = 2, kWords = 4;
    std::vector<std::int64_t> order(kHead + kWords * Survey::most_flows(hosts_));
    if (trial != nullptr) {
      order[0] = static_cast<std::int64_t>(trial->flows.size());
      order[1] = duration.count();
      for (std::size_t f = 0; f < trial->flows.size(); ++f) {
        const Flow& flow = trial->flows[f];
        std::int64_t* words = order.data() + kHead + kWords * f;
        words[0] = speaker_[at(flow.from)];
        words[1] = speaker_[at(flow.to)];
        words[2] = static_cast<std::int64_t>(
            message_bytes(flow, *trial, std::chrono::duration<double>(duration).count()));
        words[3] = trial->most.empty() ? 0 : std::llround(trial->most[f] * kPayload);
      }
    }
    group_.broadcast(order.data(), order.size(), DataType::i64, 0);
    std::vector<RankFlow> flows;
    for (std::size_t f = 0; f < static_cast<std::size_t>(order[0]); ++f) {
      const std::int64_t* words = order.data() + kHead + kWords * f;
      flows.push_back({static_cast<int>(words[0]), static_cast<int>(words[1]),
                       static_cast<std::size_t>(words[2]), static_cast<double>(words[3])});
    }
    if (flows.empty()) return {};
    FlowTrial part(group_, flows, std::chrono::nanoseconds(order[1]));
    std::vector<double> rates = part.run();
    bytes_ += part.bytes_sent();
    group_.all_reduce(rates.data(), rates.data(), rates.size(), DataType::f64, ReduceOp::sum);
    for (double& rate : rates) rate /= kPayload;
    return rates;
  }

  // The same file for all: what rank 0 has found, word for word.
  void share(cluster::Cluster& network) {
    std::string text = leads() ? to_yaml(network) : std::string();
    auto length = static_cast<std::int64_t>(text.size());
    group_.broadcast(&length, 1, DataType::i64, 0);
    text.resize(static_cast<std::size_t>(length));
    group_.broadcast(text.data(), text.size(), DataType::u8, 0);
    network = cluster::parse_cluster(text, "what rank 0 measured");
  }

  Group& group_;
  const ProbeOptions& options_;
  Layout layout_;
  int hosts_ = 0;
  std::vector<int> speaker_;  // by host: the rank that sends and receives
  // On rank 0, what was reached so far: by pairs, and by ports.
  struct Seen {
    double lately = 0;
    double alone = 0;  // the same, with both ports for itself
  };
  std::vector<std::vector<Seen>> seen_;
  std::vector<double> out_, in_;
  double slowest_ = 0;  // flow of all
  std::chrono::milliseconds budget_{0};
  double longest_ns_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace

ProbeResult probe(Group& group, const std::vector<int>& machine_of, const ProbeOptions& options) {
  return Prober(group, machine_of, options).probe();
}

}  // namespace talweg::steer
