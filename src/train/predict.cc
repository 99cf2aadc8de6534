#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/at.h"
#include "base/fail.h"
#include "train/step_dag.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

void check_scale(const char* what, double value) {
  if (!(value >= 1 / kMostScale && value <= kMostScale))
    refuse("{} is scaled by a number from {} to {}, not {}", what, 1 / kMostScale, kMostScale, value);
}

void check(const Strategy& strategy, const Setting& setting) {
  check_scale("compute", setting.compute);
  check_scale("the batch", setting.batch);
  check_scale("compression", setting.compression);
  if (setting.network.ranks < 1) refuse("a setting has at least one rank");
  if (setting.in_flight < 1) refuse("at least one transfer is in flight");
  if (setting.readers < 1) refuse("at least one rank reads from a disk");
  if (strategy.partition.value < 0 || strategy.credit.value < 0 || strategy.look_ahead < 0 ||
      strategy.merging.cap.value < 0 || strategy.merging.first_cap.value < 0)
    refuse("a strategy's sizes and look-ahead are not below 0");
  if (!setting.slowness.empty() && std::ssize(setting.slowness) != setting.network.ranks)
    refuse("slowness is given for {} of {} ranks", setting.slowness.size(), setting.network.ranks);
  for (const double slow : setting.slowness) check_scale("a rank's compute", slow);
}

// Reads the schedule of a few steps.
class Reader {
 public:
  Reader(const Job& job, const Setting& setting, StepDag steps)
      : job_(job), steps_(std::move(steps)), schedule_(run(steps_.dag)) {
    slowest_ = setting.slowness.empty()
                   ? 0
                   : static_cast<int>(std::ranges::max_element(setting.slowness) - setting.slowness.begin());
    find_turns();
  }

  Prediction read(bool in_words) {
    for (int r = 0; r < steps_.ranks; ++r) add_parts(r);
    const double share = 1.0 / (steps_.ranks * kStepsSeen);
    for (double* part :
         {&result_.parts.forward, &result_.parts.backward, &result_.parts.update, &result_.parts.gap,
          &result_.parts.overhead, &result_.parts.input, &result_.parts.exposed, &result_.parts.peer_wait})
      *part *= share;
    result_.step = (end_of(slowest_, kSteps - 1) - end_of(slowest_, kSteps - 1 - kStepsSeen)) / kStepsSeen;
    add_transfers();
    if (in_words) {
      add_critical();
      add_timeline();
      result_.bottleneck = bottleneck_words(result_);
    }
    result_.groups = std::move(steps_.groups);
    return std::move(result_);
  }

 private:
  const Task& task(int number) const { return steps_.dag.tasks()[at(number)]; }
  const Schedule::Times& times(int number) const { return schedule_.tasks[at(number)]; }
  double end_of(int rank, int step) const { return times(steps_.ends[at(rank)][at(step)]).end; }

  // Of transfers that are under way together, each one's turn begins when the one that ends before it ends.
  void find_turns() {
    std::vector<int> transfers;
    for (int number = 0; number < std::ssize(steps_.dag.tasks()); ++number)
      if (is_transfer(task(number).kind)) transfers.push_back(number);
    const auto end = [this](int number) { return times(number).end; };
    if (!std::ranges::is_sorted(transfers, {}, end)) std::ranges::stable_sort(transfers, {}, end);
    turns_.resize(steps_.dag.tasks().size());
    double free = 0;
    for (const int number : transfers) {
      turns_[at(number)] = std::max(free, times(number).start);
      free = times(number).end;
    }
  }
  // From when until its end the network is its own, without its wait for peers.
  double sending_from(int number) const {
    const double sending = times(number).start + task(number).peer_wait;
    return std::clamp(sending, turns_[at(number)], times(number).end);
  }

  // Each moment of a device belongs to the task that it runs, or to what the task that it runs next waited
  // for.
  void add_parts(int rank) {
    const double from = end_of(rank, kSteps - 1 - kStepsSeen), until = end_of(rank, kSteps - 1);
    double before = from;
    const int first = steps_.ends[at(rank)][at(kSteps - 1 - kStepsSeen)] + 1;
    for (int number = first; number < std::ssize(steps_.dag.tasks()); ++number) {
      if (task(number).resource != steps_.devices[at(rank)]) continue;
      const Schedule::Times& its = times(number);
      if (its.end > until) continue;
      if (its.start > before) add_idle(number, before);
      add(task(number).kind, its.end - its.start);
      before = its.end;
    }
  }

  void add(TaskKind kind, double seconds) {
    StepParts& parts = result_.parts;
    switch (kind) {
      case TaskKind::forward:
        parts.forward += seconds;
        break;
      case TaskKind::backward:
        parts.backward += seconds;
        break;
      case TaskKind::update:
        parts.update += seconds;
        break;
      case TaskKind::gap:
        parts.gap += seconds;
        break;
      case TaskKind::overhead:
        parts.overhead += seconds;
        break;
      case TaskKind::input:
      case TaskKind::copy:
        parts.input += seconds;
        break;
      case TaskKind::peer_wait:
        parts.peer_wait += seconds;
        break;
      default:
        parts.exposed += seconds;
    }
  }

  // From `begin` until the task starts, going back from what let it start.
  void add_idle(int number, double begin) {
    double end = times(number).start;
    for (int cause = times(number).cause; cause >= 0 && end > begin; cause = times(cause).cause) {
      const Task& its = task(cause);
      const double start = std::max(begin, times(cause).since);
      if (is_transfer(its.kind)) {
        const double sending = std::clamp(times(cause).start + its.peer_wait, start, end);
        add(its.kind, end - sending);
        add(TaskKind::peer_wait, sending - start);
      } else {
        const bool other_device = its.kind != TaskKind::input && its.kind != TaskKind::copy;
        add(other_device ? TaskKind::peer_wait : its.kind, end - start);
      }
      end = start;
    }
  }

  // Of the last step but one: some strategies end the last one's in the step that follows.
  void add_transfers() {
    for (int number = 0; number < std::ssize(steps_.dag.tasks()); ++number) {
      const Task& its = task(number);
      if (its.step != kSteps - 2 || !is_transfer(its.kind)) continue;
      const double seconds = times(number).end - sending_from(number);
      result_.transfers += seconds;
      result_.startups += std::max(0.0, seconds - (its.seconds - its.startup));  // what no other hid
      result_.sent += its.bytes;
      ++result_.calls;
    }
  }

  void add_critical() {
    const double from = end_of(slowest_, kSteps - 2);
    path_ = critical_path(schedule_, steps_.ends[at(slowest_)][kSteps - 1], from);
    double before = from;
    for (const int number : path_) {
      const Task& its = task(number);
      const double end = times(number).end;
      if (its.peer_wait > 0) {
        const double waited = std::clamp(times(number).start + its.peer_wait, before, end);
        add_path(TaskKind::peer_wait, its, waited - before);
        before = waited;
      }
      add_path(its.kind, its, end - before);
      before = end;
    }
  }
  // Tasks of one kind behind each other are one part.
  void add_path(TaskKind kind, const Task& its, double seconds) {
    if (seconds <= 0) return;
    auto& path = result_.critical;
    const bool more =
        !path.empty() && path.back().kind == kind && !is_transfer(kind) && kind != TaskKind::peer_wait;
    if (more) {
      path.back().last = its.last;
      path.back().seconds += seconds;
      path.back().label = label(kind, its, path.back().first, path.back().last, 0);
    } else {
      path.push_back({kind, its.first, its.last, label(kind, its, its.first, its.last, its.bytes), seconds});
    }
  }

  std::string label(TaskKind kind, const Task& its, int first, int last, double bytes) const {
    const std::string word = kind == TaskKind::peer_wait    ? "wait for peers"
                             : kind == TaskKind::collective ? name(its.op)
                                                            : name(kind);
    std::string text = word;
    if (first >= 0) text.append(" ").append(job_.layers[at(first)].name);
    if (first >= 0 && last != first) text.append(" .. ").append(job_.layers[at(last)].name);
    if (bytes > 0) text += fmt::format(" ({})", short_size(bytes));
    return text;
  }
  static std::string short_size(double bytes) {
    if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", bytes / (1 << 20));
    if (bytes >= 1 << 10) return fmt::format("{:.4g} KiB", bytes / (1 << 10));
    return fmt::format("{:.4g} B", bytes);
  }

  void add_timeline() {
    const double from = end_of(slowest_, kSteps - 3), until = end_of(slowest_, kSteps - 1);
    std::vector<bool> critical(steps_.dag.tasks().size());
    for (const int number : path_) critical[at(number)] = true;
    for (int number = 0; number < std::ssize(steps_.dag.tasks()); ++number) {
      const Task& its = task(number);
      const Schedule::Times& when = times(number);
      if (when.end <= when.start || when.end <= from || when.start >= until) continue;
      const Resource& resource = steps_.dag.resources()[at(its.resource)];
      const double begin = is_transfer(its.kind) ? turns_[at(number)] : when.start;
      Span span{.rank = resource.rank,
                .resource = resource.name,
                .label = label(its.kind, its, its.first, its.last, its.bytes),
                .start = begin - from,
                .end = when.end - from,
                .kind = its.kind,
                .step = its.step - (kSteps - 2),
                .first = its.first,
                .last = its.last,
                .bytes = its.bytes,
                .critical = critical[at(number)]};
      if (its.peer_wait > 0) {
        Span wait = span;
        wait.kind = TaskKind::peer_wait;
        wait.label = label(TaskKind::peer_wait, its, its.first, its.last, 0);
        wait.end = span.start = sending_from(number) - from;
        add_span(std::move(wait));
      }
      add_span(std::move(span));
    }
    std::ranges::stable_sort(result_.timeline, [](const Span& a, const Span& b) {
      return std::tie(a.rank, a.resource, a.start) < std::tie(b.rank, b.resource, b.start);
    });
  }
  void add_span(Span span) {
    if (span.end > span.start) result_.timeline.push_back(std::move(span));
  }

  const Job& job_;
  StepDag steps_;
  Schedule schedule_;
  std::vector<double> turns_;  // by task, of transfers
  int slowest_ = 0;
  std::vector<int> path_;
  Prediction result_;
};

Prediction predicted(const Job& job, const Strategy& strategy, const Setting& setting, bool recorded,
                     bool in_words) {
  validate(job);
  check(strategy, setting);
  return Reader(job, setting, build_steps(job, strategy, setting, recorded)).read(in_words);
}

}  // namespace

Prediction predict(const Job& job, const Strategy& strategy, const Setting& setting) {
  return predicted(job, strategy, setting, false, true);
}

Prediction predict_numbers(const Job& job, const Strategy& strategy, const Setting& setting) {
  return predicted(job, strategy, setting, false, false);
}

Prediction replay(const Job& job) {
  // What a loop spent on its batches before the forward pass was not hidden.
  const Strategy strategy{.input = Strategy::Input::serial, .merging = {.rule = Merging::Rule::recorded}};
  return predicted(job, strategy, {.network = no_network(job.ranks)}, true, true);
}

}  // namespace talweg::train
