#include "study/predict_study.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/fail.h"
#include "train/what_if.h"

namespace talweg::study {
namespace {

using train::Strategy;

constexpr double kLittle = 0.01;  // of a step: a gain that nobody would pay for

// Counts predictions, for whoever waits for them.
class Predictor {
 public:
  Predictor(const StepQuestion& question, std::function<void(std::size_t, std::size_t)> look)
      : question_(question), look_(std::move(look)) {}

  void expect(std::size_t more) { all_ += more; }
  // They are known.
  void pass_over(std::size_t predictions) { done_ += predictions; }

  // With its picture and words.
  train::Prediction operator()(const Strategy& strategy, const train::Setting& setting) {
    return counted(train::predict(question_.job, strategy, setting));
  }
  double step(const Strategy& strategy, const train::Setting& setting) {
    return counted(train::predict_numbers(question_.job, strategy, setting)).step;
  }

 private:
  train::Prediction counted(train::Prediction found) {
    ++done_;
    if (look_) look_(done_, std::max(done_, all_));
    return found;
  }

  const StepQuestion& question_;
  const std::function<void(std::size_t, std::size_t)> look_;
  std::size_t done_ = 0, all_ = 0;
};

// By layer, the bucket it travels in; -1: none.
std::vector<int> bucket_of_layer(const train::Job& job, const std::vector<std::vector<int>>& groups) {
  std::vector<int> bucket_of(job.layers.size(), -1);
  for (std::size_t k = 0; k < groups.size(); ++k)
    for (const int layer : groups[k]) bucket_of[at(layer)] = static_cast<int>(k);
  return bucket_of;
}

// Read off the first of the two steps in the picture, which begins with it, since some of its transfers may
// end in the second.
std::vector<Bucket> buckets_in(const train::Job& job, const train::Prediction& prediction,
                               const Strategy& strategy, double compression) {
  // Weights that are gathered for a pass are no gradients that arrive.
  const bool gathers = strategy.sending == Strategy::Sending::decoupled;
  const std::vector<int> bucket_of = bucket_of_layer(job, prediction.groups);
  std::vector<Bucket> buckets(prediction.groups.size());
  for (std::size_t k = 0; k < buckets.size(); ++k) {
    buckets[k].layers = prediction.groups[k];
    buckets[k].sent = std::numeric_limits<double>::infinity();
    for (const int layer : buckets[k].layers)
      buckets[k].bytes += static_cast<double>(job.layers[at(layer)].gradient.value) / compression;
  }
  for (const train::Span& span : prediction.timeline) {
    if (span.step != 0 || span.first < 0) continue;
    const int k = bucket_of[at(span.first)];
    if (k < 0) continue;
    Bucket& bucket = buckets[at(k)];
    if (span.kind == train::TaskKind::backward) bucket.ready = std::max(bucket.ready, span.end);
    if (!train::is_transfer(span.kind) || (span.kind == train::TaskKind::all_gather && !gathers)) continue;
    bucket.sent = std::min(bucket.sent, span.start);
    bucket.arrived = std::max(bucket.arrived, span.end);
  }
  for (Bucket& bucket : buckets) {  // of nothing that takes time
    if (std::isfinite(bucket.sent)) continue;
    bucket.sent = bucket.arrived = bucket.ready;
  }
  return buckets;
}

// Steps of some frameworks run as those of a plain strategy do.
bool runs_alike(Strategy one, const Strategy& other) {
  one.name = other.name;
  one.description = other.description;
  return one == other;
}

StepRow row_of(const StepQuestion& question, const Strategy& strategy, Predictor& predictor) {
  StepRow row;
  row.strategy = strategy;
  try {
    for (const int ranks : question.ranks) {
      if (ranks == question.ranks.back())
        row.steps.push_back((row.prediction = predictor(strategy, question.setting(ranks))).step);
      else
        row.steps.push_back(predictor.step(strategy, question.setting(ranks)));
    }
  } catch (const Error& error) {
    if (!question.all_strategies || error.code() != ErrorCode::invalid_argument) throw;
    row.unsuited = error.what();
    row.steps.clear();
    return row;
  }
  row.buckets = buckets_in(question.job, row.prediction, strategy, question.compression);
  return row;
}

// Those whose sizes were searched.
void add_searched(const StepQuestion& question, Predictor& predictor, StepStudy& study) {
  const train::Setting setting = question.setting(question.ranks.back());
  std::vector<train::Candidate> found = train::best_plans(question.job, train::find_strategy("ddp"), setting);
  for (const train::Candidate& candidate : found) {
    const bool known = std::ranges::any_of(
        study.rows, [&](const StepRow& row) { return row.strategy.name == candidate.strategy.name; });
    if (known) continue;
    Strategy strategy = candidate.strategy;
    strategy.description = "of this kind the sizes that are best here";
    study.rows.push_back(row_of(question, strategy, predictor));
  }
}

bool by_priority(const StepRow& row) {
  return row.strategy.sending == Strategy::Sending::by_priority;
}

// By the step to a picosecond, as sums in another order differ by less. Of equals the exact merging comes
// first, then PyTorch's own, then the fewest calls.
auto cost_of(const StepRow& row) {
  const std::string& name = row.strategy.name;
  return std::tuple{std::round(row.prediction.step * 1e12),
                    name == "exact" ? 0
                    : name == "ddp" ? 1
                                    : 2,
                    row.prediction.calls};
}

// The quickest first, and last what the job cannot follow.
void sort_rows(std::vector<StepRow>& rows) {
  std::ranges::stable_sort(rows, {}, [](const StepRow& row) {
    return std::pair{!row.suits(), cost_of(row)};
  });
}

// The least step of those that suit and for which `may` holds.
template <class May>
std::optional<std::size_t> quickest(const std::vector<StepRow>& rows, May may) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].suits() && may(rows[i]) && (!best || cost_of(rows[i]) < cost_of(rows[*best]))) best = i;
  return best;
}

bool has_ranks(const StepQuestion& question, int ranks) {
  const int most = question.network.most_ranks;
  return ranks <= question.network.quick_ranks && (most == 0 || ranks <= most);
}

// By the strategy that is best as things are.
void add_what_ifs(const StepQuestion& question, Predictor& predictor, StepStudy& study) {
  const Strategy& best = study.best_row().strategy;
  const double now = study.best_row().prediction.step;
  const int ranks = question.ranks.back();
  for (const train::Change& change : train::what_helps(question.job, best, question.setting(ranks)))
    study.what_ifs.push_back({change.what, change.step, times_as_quick(now, change.step)});
  train::Setting larger = question.setting(ranks);
  larger.batch *= 2;
  if (larger.batch <= train::kMostScale) {
    const double twice = predictor.step(best, larger);
    study.what_ifs.push_back({"twice the batch", twice, times_as_quick(2 * now, twice)});
  }
  if (has_ranks(question, 2 * ranks)) {
    const double more = predictor.step(best, question.setting(2 * ranks));
    study.what_ifs.push_back({"twice the ranks", more, times_as_quick(2 * now, more)});
  }
  if (!study.has_rate) return;
  study.enough_bandwidth =
      train::enough_bandwidth(question.job, best, question.setting(ranks), kLittle).enough;
}

// Of every strategy that suits, and of one that has nothing to send.
StepCurves curves(Predictor& predictor, const StepStudy& study, const std::vector<double>& x,
                  const std::function<train::Setting(double)>& setting_at) {
  StepCurves found{.x = x, .steps = std::vector<std::vector<double>>(study.rows.size()), .alone = {}};
  for (const double value : x) {
    const train::Setting setting = setting_at(value);
    for (std::size_t i = 0; i < study.rows.size(); ++i)
      if (study.rows[i].suits()) found.steps[i].push_back(predictor.step(study.rows[i].strategy, setting));
    found.alone.push_back(study.alone);
  }
  return found;
}

std::vector<double> ranks_of_curves(const StepQuestion& question) {
  int most = question.network.quick_ranks;
  if (question.network.most_ranks > 0) most = std::min(most, question.network.most_ranks);
  most = std::max(most, question.ranks.back());
  std::vector<double> ranks;
  for (int n = 2; n < most; n *= 2) ranks.push_back(n);
  ranks.push_back(most);
  for (const int n : question.ranks) ranks.push_back(n);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void add_curves(const StepQuestion& question, Predictor& predictor, StepStudy& study) {
  const std::vector<double> ranks = ranks_of_curves(question);
  const std::vector<double> bandwidths{0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32};
  predictor.expect((ranks.size() + bandwidths.size()) * study.rows.size());
  if (ranks.size() > 1)
    study.over_ranks =
        curves(predictor, study, ranks, [&](double n) { return question.setting(static_cast<int>(n)); });
  study.over_bandwidth = curves(predictor, study, bandwidths, [&](double times) {
    train::Setting setting = question.setting(question.ranks.back());
    setting.network = setting.network.with_bandwidth(times);
    return setting;
  });
}

// The job as it was recorded against what the model makes of it.
void add_measured(const StepQuestion& question, StepStudy& study) {
  const train::Job& job = question.job;
  if (job.step.value <= 0) return;
  study.measured = static_cast<double>(job.step.value) * 1e-9;
  if (!job.exchanges.empty()) study.replayed = train::replay(job).step;
  const bool same = question.compute == 1 && question.batch == 1 && question.compression == 1;
  if (!same || question.ranks.back() != job.ranks) return;
  for (StepRow& row : study.rows)
    if (row.suits()) row.off_by = row.prediction.step / *study.measured - 1;
}

}  // namespace

bool runs_under_ddp(const Strategy& strategy) {
  using Sending = Strategy::Sending;
  return strategy.sending == Sending::as_ready ||
         (strategy.sending == Sending::after_backward && strategy.merging.rule == train::Merging::Rule::all);
}

double times_as_quick(double before, double after) {
  return before == after ? 1 : after > 0 ? before / after : std::numeric_limits<double>::quiet_NaN();
}

StepStudy study_step(const StepQuestion& question,
                     const std::function<void(std::size_t, std::size_t)>& look) {
  Predictor predictor(question, look);
  predictor.expect(question.strategies.size() * question.ranks.size());
  StepStudy study;
  for (const Strategy& strategy : question.strategies) {
    const auto same = std::ranges::find_if(
        study.rows, [&](const StepRow& row) { return runs_alike(row.strategy, strategy); });
    if (same == study.rows.end()) {
      study.rows.push_back(row_of(question, strategy, predictor));
    } else {
      StepRow row = *same;
      row.strategy = strategy;
      study.rows.push_back(std::move(row));
      predictor.pass_over(question.ranks.size());
    }
  }
  if (question.all_strategies) add_searched(question, predictor, study);
  sort_rows(study.rows);
  const auto best = quickest(study.rows, [](const StepRow&) { return true; });
  if (!best) refuse("--strategy: {}", study.rows.front().unsuited);
  study.best = *best;
  study.plan = quickest(study.rows, [](const StepRow& row) { return runs_under_ddp(row.strategy); });
  if (!study.plan) study.plan = quickest(study.rows, by_priority);
  for (std::size_t i = 0; i < study.rows.size(); ++i)
    if (study.rows[i].suits() && study.rows[i].strategy.name == "ddp") study.baseline = i;
  train::Setting alone = question.setting(question.ranks.back());
  alone.network = train::no_network(1);
  alone.peer_waits = false;
  study.alone = predictor.step(study.best_row().strategy, alone);
  study.has_rate = question.network.at(question.ranks.back()).all_reduce.has_rate();
  add_what_ifs(question, predictor, study);
  if (question.curves) add_curves(question, predictor, study);
  add_measured(question, study);
  return study;
}

std::string plan_document(const train::Job& job, const StepRow& row) {
  using Json = nlohmann::ordered_json;
  constexpr std::size_t kHighestPriority = 7;  // talweg/call.h
  const bool urgent = by_priority(row);
  const auto size = [](Bytes bytes) { return bytes.value > 0 ? Json(bytes.value) : Json(); };
  Json document = {{"buckets", Json::array()}};
  for (std::size_t k = 0; k < row.buckets.size(); ++k) {
    Json layers = Json::array();
    for (const int layer : row.buckets[k].layers) layers.push_back(job.layers[at(layer)].name);
    // The last to become ready is the first that the next forward pass needs.
    const std::size_t last = row.buckets.size() - 1;
    const std::size_t priority = urgent && last > 0 ? kHighestPriority * k / last : 0;
    document["buckets"].push_back({{"layers", std::move(layers)}, {"priority", priority}});
  }
  document["partition"] = urgent ? size(row.strategy.partition) : Json();
  document["credit"] = urgent ? size(row.strategy.credit) : Json();
  return document.dump(2) + "\n";
}

}  // namespace talweg::study
