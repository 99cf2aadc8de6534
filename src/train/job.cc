#include "train/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "base/at.h"
#include "base/fail.h"

namespace talweg::train {
namespace {

template <class Unit>
Unit sum_over(const Job& job, Unit Layer::*member) {
  Unit sum;
  for (const Layer& layer : job.layers) sum.value += (layer.*member).value;
  return sum;
}

std::string time_problem(const char* what, Nanoseconds time) {
  if (time.value < 0) return fmt::format("{} is negative", what);
  if (time > kLongest) return fmt::format("{} is longer than {}", what, to_string(kLongest));
  return {};
}

std::string size_problem(const char* what, Bytes bytes) {
  if (bytes.value < 0) return fmt::format("{} is negative", what);
  if (bytes > kLargest) return fmt::format("{} is larger than {}", what, to_string(kLargest));
  return {};
}

// The first that is not empty.
std::string first_of(std::initializer_list<std::string> problems) {
  for (const std::string& problem : problems)
    if (!problem.empty()) return problem;
  return {};
}

bool comes_twice(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) != numbers.end();
}

std::string job_problem(const Job& job) {
  if (job.name.empty()) return "the job has no name";
  if (job.ranks < 1 || job.ranks > kMostRanks)
    return fmt::format("a job runs on 1 to {} ranks, not {}", kMostRanks, job.ranks);
  if (job.batch < 0) return "the batch is negative";
  if (job.in_flight < 1 || job.in_flight > kMostInFlight)
    return fmt::format("1 to {} transfers are in flight, not {}", kMostInFlight, job.in_flight);
  if (job.layers.empty()) return "the job has no layers";
  if (std::ssize(job.probes) > kMostProbes)
    return fmt::format("the job has {} probes; at most {} are taken", job.probes.size(), kMostProbes);
  if (std::ssize(job.layers) > kMostLayers)
    return fmt::format("the job has {} layers; at most {} are taken", job.layers.size(), kMostLayers);
  return first_of({time_problem("input", job.input), time_problem("copy", job.copy),
                   time_problem("update", job.update), time_problem("overhead", job.overhead),
                   time_problem("step", job.step)});
}

std::string layer_problem(const Layer& layer, int index) {
  if (layer.name.empty()) return "the layer has no name";
  for (const int before : layer.after)
    if (before < 0 || before >= index) return "a layer reads what earlier layers wrote, no others";
  if (comes_twice(layer.after)) return "it reads one layer twice";
  return first_of({time_problem("forward", layer.forward), time_problem("backward", layer.backward),
                   time_problem("update", layer.update), time_problem("forward_gap", layer.forward_gap),
                   time_problem("backward_gap", layer.backward_gap),
                   size_problem("gradient", layer.gradient)});
}

std::string exchange_problem(const Exchange& exchange, const Job& job) {
  for (const int layer : exchange.layers)
    if (layer < 0 || layer >= std::ssize(job.layers)) return "it carries a layer that does not exist";
  if (comes_twice(exchange.layers)) return "it carries one layer twice";
  return first_of({size_problem("bytes", exchange.bytes), time_problem("time", exchange.time),
                   time_problem("wait", exchange.wait)});
}

std::string probe_problem(const Probe& probe) {
  if (probe.bytes.value == 0 || probe.time.value == 0) return "a probe has bytes and a time";
  return first_of({size_problem("bytes", probe.bytes), time_problem("time", probe.time)});
}

}  // namespace

const char* name(Origin origin) {
  return origin == Origin::measured ? "measured" : "estimated";
}

Nanoseconds Job::forward() const {
  return sum_over(*this, &Layer::forward);
}
Nanoseconds Job::backward() const {
  return sum_over(*this, &Layer::backward);
}
Nanoseconds Job::forward_gaps() const {
  return sum_over(*this, &Layer::forward_gap);
}
Nanoseconds Job::backward_gaps() const {
  return sum_over(*this, &Layer::backward_gap);
}
Nanoseconds Job::all_updates() const {
  return {update.value + sum_over(*this, &Layer::update).value};
}
Bytes Job::gradients() const {
  return sum_over(*this, &Layer::gradient);
}

std::optional<JobProblem> find_problem(const Job& job) {
  if (std::string text = job_problem(job); !text.empty())
    return JobProblem{JobSection::job, 0, std::move(text)};
  std::unordered_set<std::string> names;
  for (int i = 0; i < std::ssize(job.layers); ++i) {
    const Layer& layer = job.layers[at(i)];
    std::string text = layer_problem(layer, i);
    if (text.empty() && !names.insert(layer.name).second)
      text = fmt::format("another layer is called \"{}\"", layer.name);
    if (!text.empty()) return JobProblem{JobSection::layers, i, std::move(text)};
  }
  for (int i = 0; i < std::ssize(job.exchanges); ++i) {
    if (std::string text = exchange_problem(job.exchanges[at(i)], job); !text.empty())
      return JobProblem{JobSection::exchanges, i, std::move(text)};
  }
  for (int i = 0; i < std::ssize(job.probes); ++i) {
    if (std::string text = probe_problem(job.probes[at(i)]); !text.empty())
      return JobProblem{JobSection::probes, i, std::move(text)};
  }
  return {};
}

void validate(const Job& job) {
  const auto problem = find_problem(job);
  if (!problem) return;
  switch (problem->section) {
    case JobSection::job:
      refuse("job: {}", problem->text);
    case JobSection::layers:
      refuse("job: layer {}: {}", problem->index, problem->text);
    case JobSection::exchanges:
      refuse("job: exchange {}: {}", problem->index, problem->text);
    case JobSection::probes:
      refuse("job: probe {}: {}", problem->index, problem->text);
  }
}

}  // namespace talweg::train
