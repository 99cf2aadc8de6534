#include "train/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

#include "base/at.h"
#include "base/fail.h"
#include "talweg/error.h"

namespace talweg::train {
namespace {

constexpr int kHalvings = 5, kDoublings = 7;  // of bandwidth, on the curve
constexpr int kBisections = 40;

// Of sums in another order nothing is gained or lost.
double gain_of(double step, double baseline) {
  const double gain = baseline > 0 ? 1 - step / baseline : 0;
  return std::abs(gain) < 1e-12 ? 0 : gain;
}

double step_with(const Job& job, const Strategy& strategy, Setting setting, double bandwidth) {
  setting.network = setting.network.with_bandwidth(bandwidth);
  return predict_numbers(job, strategy, setting).step;
}

std::vector<Bytes> sizes_or(std::span<const Bytes> given) {
  if (!given.empty()) return {given.begin(), given.end()};
  std::vector<Bytes> sizes;
  for (std::int64_t mib = 1; mib <= 512; mib *= 2) sizes.push_back({mib << 20});
  return sizes;
}

// Without all but the first of those that hold all of a job's gradients, which make the same groups.
std::vector<Bytes> that_differ(std::vector<Bytes> caps, const Job& job) {
  const auto holds_all = [all = job.gradients()](Bytes cap) { return cap >= all; };
  const auto first = std::ranges::find_if(caps, holds_all);
  if (first != caps.end()) caps.erase(std::remove_if(first + 1, caps.end(), holds_all), caps.end());
  return caps;
}

class Search {
 public:
  Search(const Job& job, const Strategy& baseline, const Setting& setting, const SearchLimits& limits)
      : job_(job), setting_(setting), limits_(limits), input_(baseline.input) {
    found_.push_back(tried(baseline));
    baseline_step_ = found_.front().step;
  }

  std::vector<Candidate> run() {
    merge();
    if (limits_.by_priority) cut();
    if (limits_.decoupled) by_groups("dear", "groups", {1, 0});
    if (limits_.sharded) by_groups("fsdp", "units", {1});
    for (Candidate& candidate : found_) candidate.gain = gain_of(candidate.step, baseline_step_);
    std::ranges::stable_sort(found_, {}, &Candidate::step);
    return std::move(found_);
  }

  Candidate by_cap(std::span<const Bytes> caps) {
    Candidate best{.step = std::numeric_limits<double>::infinity()};
    for (const Bytes cap : that_differ(sizes_or(caps), job_)) {
      Strategy strategy = find_strategy("ddp");
      strategy.merging.first_cap = strategy.merging.cap = cap;
      strategy.name = fmt::format("ddp, buckets of {}", to_string(cap));
      keep(best, std::move(strategy));
    }
    best.gain = gain_of(best.step, baseline_step_);
    return best;
  }

 private:
  Candidate tried(Strategy strategy) const {
    strategy.input = input_;
    Prediction predicted = predict_numbers(job_, strategy, setting_);
    return {std::move(strategy), predicted.step, 0, predicted.parts, predicted.calls};
  }
  // Passes over what would be more pieces than the model takes.
  void keep(Candidate& best, Strategy strategy) const {
    try {
      Candidate candidate = tried(std::move(strategy));
      if (candidate.step < best.step) best = std::move(candidate);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
    }
  }
  void add_best(Candidate best) {
    if (std::isfinite(best.step)) found_.push_back(std::move(best));
  }

  void merge() {
    for (const char* name : {"one", "wfbp", "mg-wfbp", "exact"}) add(find_strategy(name));
    add_best(by_cap(limits_.caps));
  }
  void add(const Strategy& strategy) {
    if (std::ranges::none_of(found_, [&](const Candidate& c) { return c.strategy.name == strategy.name; }))
      found_.push_back(tried(strategy));
  }

  // What pieces and credit come to: no piece is larger than the largest gradient, and no more can be under
  // way than all that a step sends. Twice that is as good as no limit, whatever sums are rounded to.
  struct PieceLimits {
    double largest = 0, all = 0;  // bytes on the wire
    std::pair<double, double> what_counts(Bytes partition, Bytes credit) const {
      return {std::min(largest, static_cast<double>(partition.value)),
              std::min(2 * all, static_cast<double>(credit.value))};
    }
  };
  PieceLimits piece_limits() const {
    PieceLimits limits;
    for (const Layer& layer : job_.layers) {
      const double bytes = static_cast<double>(layer.gradient.value) / setting_.compression;
      limits.largest = std::max(limits.largest, bytes);
      limits.all += bytes;
    }
    for (const Exchange& exchange : job_.exchanges) limits.all += static_cast<double>(exchange.bytes.value);
    return limits;
  }

  void cut() {
    Candidate best{.step = std::numeric_limits<double>::infinity()};
    std::vector<Bytes> sizes = sizes_or(limits_.partitions);
    sizes.insert(sizes.begin(), Bytes{});  // whole tensors
    const PieceLimits limits = piece_limits();
    std::set<std::pair<double, double>> seen;
    for (const Bytes partition : sizes) {
      for (const int pieces : {1, 2, 4}) {
        // Of whole tensors, credit in bytes says how many are under way.
        if (partition.value == 0 && pieces > 1) continue;
        if (!seen.insert(limits.what_counts(partition, {pieces * partition.value})).second) continue;
        Strategy strategy{
            .name = partition.value == 0
                        ? std::string("by priority, whole gradients")
                        : fmt::format("by priority, pieces of {}, {} under way", to_string(partition),
                                      to_string(Bytes{pieces * partition.value})),
            .description = "pieces by priority",
            .sending = Strategy::Sending::by_priority,
            .merging = {.rule = Merging::Rule::none},
            .partition = partition,
            .credit = {pieces * partition.value}};
        keep(best, std::move(strategy));
      }
    }
    add_best(std::move(best));
  }

  // Those whose groups have a size alone, and that gather so many groups ahead.
  void by_groups(const char* name, const char* what, std::initializer_list<int> look_aheads) {
    Candidate best{.step = std::numeric_limits<double>::infinity()};
    for (const Bytes cap : that_differ(sizes_or(limits_.caps), job_)) {
      for (const int ahead : look_aheads) {
        Strategy strategy = find_strategy(name);
        strategy.merging.first_cap = strategy.merging.cap = cap;
        strategy.look_ahead = ahead;
        strategy.name =
            fmt::format("{}, {} of {}{}", name, what, to_string(cap), ahead == 0 ? ", all at once" : "");
        keep(best, std::move(strategy));
      }
    }
    add_best(std::move(best));
  }

  const Job& job_;
  const Setting& setting_;
  const SearchLimits& limits_;
  Strategy::Input input_;
  double baseline_step_ = 0;
  std::vector<Candidate> found_;
};

}  // namespace

TimesAtRanks by_growth(const NetworkTimes& network, Growth growth) {
  return [network, growth](int ranks) { return at_ranks(network, ranks, growth); };
}

std::vector<ScalePoint> scaling(const Job& job, const Strategy& strategy, const Setting& setting,
                                std::span<const int> ranks, const TimesAtRanks& times) {
  if (!setting.slowness.empty()) refuse("slow ranks are numbered, so that their number cannot change");
  Setting alone = setting;
  alone.network = no_network(1);
  alone.peer_waits = false;
  const double one = predict_numbers(job, strategy, alone).step;
  std::vector<ScalePoint> curve;
  for (const int n : ranks) {
    if (n < 1) refuse("there is at least one rank, not {}", n);
    Setting its = n == 1 ? alone : setting;
    if (n > 1) its.network = times(n);
    const Prediction predicted = predict_numbers(job, strategy, its);
    const double speed_up = predicted.step > 0 ? n * one / predicted.step : n;
    const double samples = static_cast<double>(job.batch) * setting.batch * n;
    curve.push_back({n, predicted.step, speed_up, speed_up / n,
                     predicted.step > 0 ? samples / predicted.step : 0, predicted.parts.exposed});
  }
  return curve;
}

EnoughBandwidth enough_bandwidth(const Job& job, const Strategy& strategy, const Setting& setting,
                                 double threshold) {
  if (!(threshold > 0)) refuse("a gain that counts is above 0");
  EnoughBandwidth answer;
  answer.step = predict_numbers(job, strategy, setting).step;
  Setting unbounded = setting;
  unbounded.network = unbounded.network.with_bandwidth(std::numeric_limits<double>::infinity());
  answer.at_best = predict_numbers(job, strategy, unbounded).step;
  for (int i = -kHalvings; i <= kDoublings; ++i) {
    const double bandwidth = std::exp2(i);
    answer.curve.push_back({bandwidth, step_with(job, strategy, setting, bandwidth)});
  }
  const double limit = answer.at_best * (1 + threshold);
  const auto is_enough = [&](double bandwidth) {
    return step_with(job, strategy, setting, bandwidth) <= limit;
  };
  // Between two points of the curve, or beyond one of its ends.
  double low = 1 / kMostBandwidth, high = kMostBandwidth;
  for (const auto& point : answer.curve) {
    if (point.step <= limit) {
      high = std::min(high, point.bandwidth);
    } else {
      low = std::max(low, point.bandwidth);
    }
  }
  if (high == kMostBandwidth && !is_enough(high)) return answer;
  if (low == 1 / kMostBandwidth && is_enough(low)) {
    answer.enough = low;
    return answer;
  }
  for (int i = 0; i < kBisections && high / low > 1.001; ++i) {
    const double middle = std::sqrt(low * high);
    (is_enough(middle) ? high : low) = middle;
  }
  answer.enough = high;
  return answer;
}

std::vector<Candidate> best_plans(const Job& job, const Strategy& baseline, const Setting& setting,
                                  const SearchLimits& limits) {
  return Search(job, baseline, setting, limits).run();
}

Candidate best_cap(const Job& job, const Strategy& baseline, const Setting& setting,
                   std::span<const Bytes> caps) {
  const SearchLimits limits;
  return Search(job, baseline, setting, limits).by_cap(caps);
}

std::string to_words(const Candidate& candidate) {
  return fmt::format("{}: {} calls a step, step {:.4g} ms, {:.3g} % {}", candidate.strategy.name,
                     candidate.calls, candidate.step * 1e3, 100 * std::abs(candidate.gain),
                     candidate.gain >= 0 ? "less" : "more");
}

std::vector<Change> what_helps(const Job& job, const Strategy& strategy, const Setting& setting) {
  const double now = predict_numbers(job, strategy, setting).step;
  std::vector<Change> changes;
  const auto with = [&](const char* what, const Job& its_job, const Setting& its) {
    const double step = predict_numbers(its_job, strategy, its).step;
    changes.push_back({what, step, gain_of(step, now)});
  };
  Setting other = setting;
  const bool has_rate = setting.network.all_reduce.has_rate();
  other.network = setting.network.with_bandwidth(2);
  if (has_rate) with("twice the bandwidth", job, other);
  other.network = setting.network;
  for (TransferTimes* times :
       {&other.network.all_reduce, &other.network.reduce_scatter, &other.network.all_gather})
    *times = times->scaled(0, 1);
  with("no start-ups", job, other);
  other = setting;
  other.compute *= 2;
  if (other.compute <= kMostScale) with("devices twice as fast", job, other);
  other = setting;
  other.compression *= 2;
  if (has_rate && other.compression <= kMostScale) with("half the bytes", job, other);
  other = setting;
  other.peer_waits = false;
  std::ranges::fill(other.slowness, setting.slowness.empty() ? 1 : std::ranges::min(setting.slowness));
  with("no rank late", job, other);
  Job changed = job;
  for (Layer& layer : changed.layers) layer.forward_gap = layer.backward_gap = {};
  with("no gaps", changed, setting);
  changed = job;
  changed.input = changed.copy = {};
  with("batches that are there", changed, setting);
  std::ranges::stable_sort(changes, {}, &Change::step);
  return changes;
}

}  // namespace talweg::train
