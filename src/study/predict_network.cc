#include "study/predict_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/settings.h"
#include "base/units.h"
#include "cluster/cluster.h"
#include "formats/import.h"
#include "study/machine.h"
#include "study/plan_report.h"
#include "text/yaml_reader.h"
#include "train/cluster_times.h"
#include "train/fit_times.h"

namespace talweg::study {
namespace {

// From one host to another, through a switch: what assumed networks have (steer/assumed_network.h).
constexpr Nanoseconds kHostLatency{50'000};

constexpr const char* kSimulated = "simulated";  // of --times

constexpr double kMostPerByte = 1e6;  // ns, of --alpha-beta: 8 kbit/s

// Planning for equal hosts takes 3 s for so many, and four times as long for twice as many.
constexpr int kMostPlannedRanks = 128;
constexpr int kQuickPlannedRanks = 32;
constexpr int kQuickFormulaRanks = 1024;
// Simulating a call of each size for so many takes some seconds.
constexpr int kMostSimulatedRanks = 64;
constexpr int kQuickSimulatedRanks = 16;
// Below it a call of 16 MiB takes hours, and its packets longer than the simulator's clock holds exactly.
constexpr Bandwidth kLeastSimulated{1e5};
constexpr Nanoseconds kMostSimulatedLatency{
    60'000'000'000};  // there and back as long as TCP waits at most before it sends again

// What `parse` makes of an option's text, or its complaint with the option's name in front.
template <typename Parse>
auto of_option(const char* option, Parse&& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw_error(error.code(), "{}: {}", option, error.what());
  }
}

void check_simulated(const cluster::Cluster& cluster) {
  const auto check = [](Bandwidth capacity) {
    if (capacity < kLeastSimulated)
      refuse("--times {}: expected at least {} of every link, got {}", kSimulated, to_string(kLeastSimulated),
             to_string(capacity));
  };
  for (const cluster::Link& link : cluster.links) {
    check(link.capacity);
    if (link.latency > kMostSimulatedLatency)
      refuse("--times {}: expected a latency of at most {} of every link, got {}", kSimulated,
             to_string(kMostSimulatedLatency), to_string(link.latency));
  }
  for (const cluster::CapacityGroup& group : cluster.groups) check(group.capacity);
}

// "a,b" in two; the second may be missing.
std::array<std::string, 2> halves(const std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) return {text, ""};
  return {text.substr(0, comma), text.substr(comma + 1)};
}

using TimesAt = std::function<train::NetworkTimes(int ranks)>;

// Each number of ranks is worked out once.
TimesAt remembering(TimesAt work_out) {
  const auto known = std::make_shared<std::map<int, train::NetworkTimes>>();
  return [known, work_out = std::move(work_out)](int ranks) {
    const auto found = known->find(ranks);
    return found != known->end() ? found->second : known->emplace(ranks, work_out(ranks)).first->second;
  };
}

PredictNetwork of_cluster(const std::string& path, const std::string& origin, const std::string& times) {
  auto cluster = std::make_shared<const cluster::Cluster>(formats::load_any(path));
  const int workers = cluster->workers();
  if (workers < 2) refuse("--cluster {}: it has {} worker; a step needs 2 at least", path, workers);
  const std::string words = fmt::format("{} ({}), {} workers", path, origin, workers);
  if (times == kSimulated) {
    of_option("--cluster", [&] { check_simulated(*cluster); });
    return {words + ", simulated", "cluster", times, workers, kQuickSimulatedRanks, [cluster](int ranks) {
              return train::simulated_times_at(*cluster, ranks);
            }};
  }
  return {
      words,   "cluster",          times,
      workers, kQuickPlannedRanks, [cluster](int ranks) { return train::cluster_times_at(*cluster, ranks); }};
}

PredictNetwork of_rate(const std::string& text, const std::string& times) {
  const auto [rate_text, latency_text] = halves(text);
  if (!rate_text.empty() && rate_text.find_first_not_of("0123456789.") == std::string::npos)
    refuse("--rate: \"{}\" has no unit: expected one such as {}Gbit/s", rate_text,
           rate_text.find_first_of("123456789") == std::string::npos ? "10" : rate_text);
  const Bandwidth rate = of_option("--rate", [&, &of = rate_text] { return parse_bandwidth(of); });
  const Nanoseconds latency = of_option("--rate", [&, &of = latency_text] {
    return text.find(',') == std::string::npos ? kHostLatency : parse_nanoseconds(of);
  });
  const Nanoseconds one_way{latency.value / 2};
  const bool simulated = times == kSimulated;
  of_option("--rate", [&] {
    const cluster::Cluster two = cluster::uniform_star(2, rate, one_way);
    cluster::validate(two);
    if (simulated) check_simulated(two);
  });
  const auto known = remembering([rate, one_way, simulated](int ranks) {
    const cluster::Cluster hosts = cluster::uniform_star(ranks, rate, one_way);
    return simulated ? train::simulated_times(hosts) : train::cluster_times(hosts);
  });
  const int most = simulated ? kMostSimulatedRanks : kMostPlannedRanks;
  return {fmt::format("equal hosts on {}, {} from one to another{}", to_string(rate), to_string(latency),
                      simulated ? ", simulated" : ""),
          "rate",
          times,
          0,
          simulated ? kQuickSimulatedRanks : kQuickPlannedRanks,
          [known, most](int ranks) {
            return train::at_ranks(known(std::min(ranks, most)), ranks, train::Growth::tree);
          }};
}

PredictNetwork of_alpha_beta(const std::string& text, int ranks) {
  const train::NetworkTimes given = train::network_of("given", ranks, parse_alpha_beta(text));
  return {fmt::format("as given for {} ranks, for others as rings grow", ranks),
          "alpha_beta",
          "given",
          0,
          kQuickFormulaRanks,
          [given](int n) { return train::at_ranks(given, n); }};
}

// Where samples do not tell how a time grows with the size: why, and what is assumed of it; else nothing.
std::string assumed_of(const train::Fit& fit, const std::vector<train::Sample>& samples, int in_flight,
                       bool probed) {
  constexpr double kAlike = 2;  // times the least size
  const auto [least, most] = std::ranges::minmax(samples, {}, &train::Sample::bytes);
  const auto size = [](double bytes) { return fmt::format("{:.3g} MB", bytes * 1e-6); };
  if (least.bytes == most.bytes)
    return fmt::format(
        "all recorded all-reduces have {}, which cannot tell a start-up: it is assumed that there is none",
        size(least.bytes));
  if (in_flight > 1 && samples.size() > 1 && !probed)
    return fmt::format(
        "up to {} all-reduces were under way together, which hides the start-up of each: it is assumed that "
        "there "
        "is none, and that each byte took as long",
        in_flight);
  if (fit.times.per_byte() > 0) return {};
  if (fit.times.has_rate())
    return fmt::format(
        "recorded all-reduces take no longer the larger they are from {} on: it is assumed that no size does",
        size(fit.times.pieces().back().from));
  return fmt::format(
      "recorded all-reduces have {} to {}, which {}: it is assumed that each takes as long, whatever its "
      "size",
      size(least.bytes), size(most.bytes),
      most.bytes < kAlike * least.bytes ? "is too alike to tell a rate"
                                        : "tells no rate, as the larger took no longer");
}

// Where samples are far from the times fitted to them: how far, and which is the farthest.
std::string misfit_of(const train::Fit& fit, const std::vector<train::Sample>& samples) {
  if (fit.error <= kBadFit) return {};
  const auto off = [&](const train::Sample& sample) {
    return std::abs(fit.times.seconds(sample.bytes) / sample.seconds - 1);
  };
  const train::Sample worst = *std::ranges::max_element(samples, {}, off);
  return fmt::format(
      "recorded all-reduces are {:.0f} % off the times fitted to them (root mean square): one of {:.3g} MB "
      "took "
      "{}, the fit says {}; what follows from it is as uncertain",
      100 * fit.error, worst.bytes * 1e-6, duration_text(worst.seconds),
      duration_text(fit.times.seconds(worst.bytes)));
}

// What the job's own transfers took; kind and words are empty where it has none.
PredictNetwork of_job(const train::Job& job) {
  const std::vector<train::Sample> samples = train::samples_of(job, Collective::all_reduce);
  if (samples.empty() || job.ranks < 2) return {};
  const train::Fit fit = train::fit_times(samples);
  const train::NetworkTimes fitted = train::network_of("recorded", job.ranks, fit.times);
  const bool probed = train::are_probes(job, Collective::all_reduce);
  return {fmt::format("as {} of the job fit{} it, between {} ranks; for others as rings grow",
                      samples.size() == 1
                          ? "one all-reduce"
                          : fmt::format("{} {}all-reduces", samples.size(), probed ? "probed " : ""),
                      samples.size() == 1 ? "s" : "", job.ranks),
          "recorded",
          "fitted",
          0,
          kQuickFormulaRanks,
          [fitted](int n) { return train::at_ranks(fitted, n); },
          assumed_of(fit, samples, job.in_flight, probed),
          fit,
          misfit_of(fit, samples)};
}

PredictNetwork remembering(PredictNetwork network) {
  network.at = remembering(std::move(network.at));
  return network;
}

}  // namespace

train::TransferTimes parse_alpha_beta(const std::string& text) {
  const auto [startup_text, byte_text] = halves(text);
  const auto wrong = [&] {
    refuse("--alpha-beta: expected a start-up and the time of a byte, such as 523us,0.857ns/B, got \"{}\"",
           text);
  };
  if (!byte_text.ends_with("ns/B")) wrong();
  const auto per_byte = text::read_number(byte_text.substr(0, byte_text.size() - 4));
  if (!per_byte || *per_byte < 0) wrong();
  if (*per_byte > kMostPerByte)
    refuse("--alpha-beta: a byte takes at most {} ns, not {}", kMostPerByte, *per_byte);
  const Nanoseconds startup =
      of_option("--alpha-beta", [&, &of = startup_text] { return parse_nanoseconds(of); });
  return train::linear_times(static_cast<double>(startup.value) * 1e-9, *per_byte * 1e-9);
}

void check_network(const NetworkWords& words) {
  const std::array<std::pair<const char*, const std::string*>, 3> options{
      {{"--cluster", &words.cluster}, {"--rate", &words.rate}, {"--alpha-beta", &words.alpha_beta}}};
  const char* given = nullptr;
  for (const auto& [option, text] : options) {
    if (text->empty()) continue;
    if (given != nullptr) refuse("{} and {}: expected one of them", given, option);
    given = option;
  }
  if (words.times == kSimulated && !words.alpha_beta.empty())
    refuse("--times simulated: beside --cluster or --rate, not --alpha-beta");
}

bool knows_network(const NetworkWords& words, const train::Job& job) {
  if (!words.rate.empty() || !words.alpha_beta.empty() ||
      !resolve("TALWEG_CLUSTER", words.cluster).value.empty())
    return true;
  return job.ranks > 1 && !train::samples_of(job, Collective::all_reduce).empty();
}

PredictNetwork predict_network(const NetworkWords& words, const train::Job& job, int ranks) {
  check_network(words);
  if (!words.rate.empty()) return remembering(of_rate(words.rate, words.times));
  if (!words.alpha_beta.empty()) return remembering(of_alpha_beta(words.alpha_beta, ranks));
  const auto file = resolve("TALWEG_CLUSTER", words.cluster);
  if (!file.value.empty()) return remembering(of_cluster(file.value, origin_text(file), words.times));
  if (words.times == kSimulated)
    refuse("--times simulated: of which network? give --cluster with a file, or --rate");
  PredictNetwork recorded = of_job(job);
  if (recorded.words.empty())
    refuse(
        "on which network? give --cluster with a file, --rate such as 10Gbit/s, or --alpha-beta such as "
        "523us,0.857ns/B");
  return remembering(std::move(recorded));
}

}  // namespace talweg::study
