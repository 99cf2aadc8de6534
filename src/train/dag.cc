#include "train/dag.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <numeric>
#include <queue>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/fail.h"

namespace talweg::train {
namespace {

// Lets time pass from one end of a task to the next.
class Runner {
 public:
  explicit Runner(const Dag& dag)
      : dag_(dag), waits_for_(dag.tasks().size()), states_(dag.resources().size()) {
    schedule_.tasks.resize(dag.tasks().size());
    for (int task = 0; task < std::ssize(dag.tasks()); ++task) {
      waits_for_[at(task)] = dag.after(task).size();
      state_of(task).in_order.push_back(task);
    }
    find_followers();
    for (std::size_t r = 0; r < states_.size(); ++r) states_[r].credit = dag.resources()[r].credit;
  }

  Schedule run() {
    for (int task = 0; task < std::ssize(dag_.tasks()); ++task)
      if (waits_for_[at(task)] == 0) become_ready(task);
    for (std::size_t r = 0; r < states_.size(); ++r) serve(static_cast<int>(r));
    while (!ends_.empty()) {
      // All that ends at one moment has ended before anything is taken, so that the most urgent goes first.
      now_ = ends_.top().first;
      ended_.clear();
      for (; !ends_.empty() && ends_.top().first == now_; ends_.pop()) ended_.push_back(ends_.top().second);
      touched_.clear();
      for (const int task : ended_) pass(task);
      std::ranges::sort(touched_);
      touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
      for (const int resource : touched_) serve(resource);
    }
    return std::move(schedule_);
  }

 private:
  struct State {
    std::deque<int> in_order;             // as_added: not started
    std::set<std::pair<int, int>> ready;  // by_urgency: (urgency, task)
    std::deque<int> taken;                // by_urgency: on credit, not started
    double credit = 0;
    int under_way = 0;
    std::deque<int> queue;  // under way, their start-ups over: the first is served, the others wait
    double saved = 0;       // of idleness, seconds that are not made good yet
    double idle_since = 0;  // with an empty queue
    int ended = -1;         // the last that ended
    int started = -1;       // the last that started
  };

  void find_followers() {
    const std::size_t tasks = dag_.tasks().size();
    first_follower_.assign(tasks + 1, 0);
    for (int task = 0; task < std::ssize(dag_.tasks()); ++task)
      for (const int before : dag_.after(task)) ++first_follower_[at(before) + 1];
    std::partial_sum(first_follower_.begin(), first_follower_.end(), first_follower_.begin());
    followers_.resize(first_follower_.back());
    std::vector<std::size_t> next(first_follower_.begin(), first_follower_.end() - 1);
    for (int task = 0; task < std::ssize(dag_.tasks()); ++task)
      for (const int before : dag_.after(task)) followers_[next[at(before)]++] = task;
  }
  std::span<const int> followers_of(int task) const {
    return std::span(followers_)
        .subspan(first_follower_[at(task)], first_follower_[at(task) + 1] - first_follower_[at(task)]);
  }

  State& state_of(int task) { return states_[at(dag_.tasks()[at(task)].resource)]; }

  void become_ready(int task) {
    const Task& its = dag_.tasks()[at(task)];
    if (dag_.resources()[at(its.resource)].order == Order::by_urgency)
      state_of(task).ready.insert({its.urgency, task});
  }

  // A start-up is over, or what is served.
  void pass(int task) {
    State& state = state_of(task);
    if (!state.queue.empty() && state.queue.front() == task) {
      end(task);
      state.queue.pop_front();
      if (state.queue.empty()) {
        state.idle_since = now_;
        return;
      }
      auto& next = schedule_.tasks[at(state.queue.front())];
      next.since = now_;
      next.cause = task;
    } else {
      state.queue.push_back(task);
      if (state.queue.size() > 1) return;
      save(state, task, now_);
    }
    const Task& its = dag_.tasks()[at(state.queue.front())];
    ends_.push({now_ + serve(state, its), state.queue.front()});
  }
  // Of a resource that is idle until then.
  void save(State& state, int task, double until) const {
    const double most = dag_.resources()[at(dag_.tasks()[at(task)].resource)].burst;
    state.saved = std::min(most, state.saved + until - state.idle_since);
  }
  // How long it takes behind its start-up.
  static double serve(State& state, const Task& its) {
    const double seconds = its.seconds - startup_of(its);
    const double spent = std::min(state.saved, std::max(0.0, seconds - its.fixed));
    state.saved -= spent;
    return seconds - spent;
  }
  static double startup_of(const Task& its) { return std::min(its.startup, its.seconds); }

  void end(int task) {
    const Task& its = dag_.tasks()[at(task)];
    State& state = state_of(task);
    schedule_.tasks[at(task)].end = now_;
    --state.under_way;
    state.ended = task;
    state.credit += its.bytes;
    touched_.push_back(its.resource);
    for (const int follower : followers_of(task)) {
      auto& times = schedule_.tasks[at(follower)];
      times.cause = task;  // the last that it waited for
      if (--waits_for_[at(follower)] > 0) continue;
      become_ready(follower);
      touched_.push_back(dag_.tasks()[at(follower)].resource);
    }
  }

  void serve(int resource) {
    State& state = states_[at(resource)];
    const Resource& its = dag_.resources()[at(resource)];
    if (its.order == Order::as_added) {
      while (state.under_way < its.in_flight && !state.in_order.empty() &&
             waits_for_[at(state.in_order.front())] == 0) {
        start(state.in_order.front(), state);
        state.in_order.pop_front();
      }
      return;
    }
    take(state, its);
    while (state.under_way < its.in_flight && !state.taken.empty()) {
      start(state.taken.front(), state);
      state.taken.pop_front();
      take(state, its);
    }
  }

  void take(State& state, const Resource& its) {
    const auto may = [&] {
      return its.credit > 0 ? state.credit > 0
                            : state.under_way + std::ssize(state.taken) < std::ptrdiff_t{its.in_flight};
    };
    while (!state.ready.empty() && may()) {
      const int task = state.ready.begin()->second;
      state.ready.erase(state.ready.begin());
      state.taken.push_back(task);
      state.credit -= dag_.tasks()[at(task)].bytes;
    }
  }

  void start(int task, State& state) {
    const Task& its = dag_.tasks()[at(task)];
    auto& times = schedule_.tasks[at(task)];
    times.start = times.since = now_;
    // What ended last let it start: what it waited for, what the one before it in the order waited for, or of
    // equals the resource's own, which keeps a path on its resource.
    const auto consider = [&](int cause) {
      if (cause >= 0 &&
          (times.cause < 0 || schedule_.tasks[at(cause)].end >= schedule_.tasks[at(times.cause)].end))
        times.cause = cause;
    };
    if (state.started >= 0 && schedule_.tasks[at(state.started)].start == now_)
      consider(schedule_.tasks[at(state.started)].cause);
    consider(state.ended);
    state.started = task;
    ++state.under_way;
    // Alone on its resource it needs no start-up of its own.
    if (dag_.resources()[at(its.resource)].in_flight == 1) {
      state.queue.push_back(task);
      save(state, task, now_ + startup_of(its));
      ends_.push({now_ + startup_of(its) + serve(state, its), task});
    } else {
      ends_.push({now_ + startup_of(its), task});
    }
  }

  using End = std::pair<double, int>;

  const Dag& dag_;
  Schedule schedule_;
  std::vector<std::size_t> waits_for_;
  std::vector<int> followers_;               // of all tasks, one task's behind another's
  std::vector<std::size_t> first_follower_;  // by task
  std::vector<int> ended_, touched_;         // at the moment at hand: tasks, resources
  std::vector<State> states_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
};

bool goes_as_added(const Dag& dag) {
  return std::ranges::all_of(dag.resources(), [](const Resource& resource) {
    return resource.order == Order::as_added && resource.in_flight == 1 && resource.burst == 0;
  });
}

// What Runner comes to where every resource takes its tasks as added, one at a time: then a task begins once
// all that it waits for and the one before it on its resource have ended, all of which were added before it.
Schedule run_as_added(const Dag& dag) {
  const std::vector<Task>& tasks = dag.tasks();
  Schedule schedule;
  schedule.tasks.resize(tasks.size());
  // Of ends at one time: what takes no time ends behind all that had ended when it began.
  std::vector<int> round(tasks.size());
  std::vector<int> before_it(dag.resources().size(), -1);  // by resource
  for (int task = 0; task < std::ssize(tasks); ++task) {
    const Task& its = tasks[at(task)];
    Schedule::Times& times = schedule.tasks[at(task)];
    int last = -1;  // its round
    const auto wait_for = [&](int other) {
      const double end = schedule.tasks[at(other)].end;
      if (end < times.start || (end == times.start && round[at(other)] <= last)) return false;
      times.start = end;
      last = round[at(other)];
      return true;
    };
    // Of those that end in one round the last that was added is the cause.
    for (const int other : dag.after(task)) {
      const bool same = times.cause >= 0 && schedule.tasks[at(other)].end == times.start &&
                        round[at(other)] == last && other > times.cause;
      if (wait_for(other) || same) times.cause = other;
    }
    if (const int other = std::exchange(before_it[at(its.resource)], task); other >= 0) {
      wait_for(other);
      const auto consider = [&](int cause) {
        if (cause >= 0 &&
            (times.cause < 0 || schedule.tasks[at(cause)].end >= schedule.tasks[at(times.cause)].end))
          times.cause = cause;
      };
      if (schedule.tasks[at(other)].start == times.start) consider(schedule.tasks[at(other)].cause);
      consider(other);
    }
    times.since = times.start;
    times.end = times.start + its.seconds;
    round[at(task)] = times.end > times.start ? 0 : last + 1;
  }
  return schedule;
}

}  // namespace

const char* name(TaskKind kind) {
  static constexpr const char* kNames[kTaskKinds] = {
      "input",    "copy",       "forward",        "backward",   "gap",        "update",
      "overhead", "all_reduce", "reduce_scatter", "all_gather", "collective", "peer_wait"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_transfer(TaskKind kind) {
  return kind == TaskKind::all_reduce || kind == TaskKind::reduce_scatter || kind == TaskKind::all_gather ||
         kind == TaskKind::collective;
}

int Dag::add_resource(const Resource& resource) {
  resources_.push_back(resource);
  return static_cast<int>(resources_.size()) - 1;
}

int Dag::add(const Task& task, std::span<const int> after) {
  const int number = static_cast<int>(tasks_.size());
  if (task.resource < 0 || task.resource >= std::ssize(resources_)) refuse("task {} has no resource", number);
  if (!(task.seconds >= 0)) refuse("task {} takes {} s", number, task.seconds);
  if (std::ranges::any_of(after, [number](int other) { return other >= number; }))
    refuse("task {} waits for a task that is not there yet", number);
  tasks_.push_back(task);
  std::ranges::copy_if(after, std::back_inserter(after_), [](int other) { return other >= 0; });
  first_after_.push_back(after_.size());
  return number;
}

Schedule run(const Dag& dag) {
  return goes_as_added(dag) ? run_as_added(dag) : Runner(dag).run();
}

std::vector<int> critical_path(const Schedule& schedule, int task, double from) {
  std::vector<int> path;
  for (; task >= 0 && schedule.tasks[at(task)].end > from; task = schedule.tasks[at(task)].cause)
    path.push_back(task);
  std::ranges::reverse(path);
  return path;
}

}  // namespace talweg::train
