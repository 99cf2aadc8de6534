// The DAG of training steps and its schedule: tasks that take time, what must end before each begins, and the
// resource that each occupies. After Shi, Wang, Chu, Li: "A DAG model of synchronous stochastic gradient
// descent in distributed deep learning" (2018), where the time of a step is the longest path; here resources
// are part of it, so a task also follows whatever its resource does before it.
//
//   Dag dag;
//   const int device = dag.add_resource("device", Order::as_added);
//   const int forward = dag.add({.kind = TaskKind::forward, .resource = device, .seconds = 2e-3});
//   dag.add({.kind = TaskKind::backward, .resource = device, .seconds = 4e-3}, {forward});
//   const Schedule schedule = run(dag);
//   critical_path(schedule, 1, 0);         // the tasks, earliest first, that set when task 1 ends
//
// Everything is deterministic: equal input, equal schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "talweg/types.h"

namespace talweg::train {

enum class TaskKind : std::uint8_t {
  input,  // reads a batch
  copy,   // a batch, host to device
  forward,
  backward,
  gap,       // the device waits for its host or for another stream
  update,    // the optimiser
  overhead,  // the rest of a step, that nothing overlaps
  all_reduce,
  reduce_scatter,
  all_gather,
  collective,  // any other
  peer_wait,   // a collective that has begun waits for ranks that are late: the beginning of a transfer
};
inline constexpr int kTaskKinds = 12;
const char* name(TaskKind kind);
// Collectives on the wire: neither the wait for peers nor anything local.
bool is_transfer(TaskKind kind);

struct Task {
  TaskKind kind = TaskKind::forward;
  int resource = 0;
  int step = 0;    // of training: 0, 1, ..
  int first = -1;  // the first layer it concerns, and the last; -1: none
  int last = -1;
  double seconds = 0;
  double peer_wait = 0;                    // of these, at the beginning of a transfer
  double bytes = 0;                        // transfers
  Collective op = Collective::all_reduce;  // of TaskKind::collective
  // Where the resource orders by urgency: the least goes first, and of equals the one that was added first.
  int urgency = 0;
  // Of `seconds`, its beginning (a wait for peers included) in which it does not need the resource for
  // itself: start-ups of tasks that are under way together overlap, the rest of each is served in turn.
  double startup = 0;
  // Of the rest of `seconds`, what no token bucket makes any quicker, such as what processors do.
  double fixed = 0;
};

// In which order a resource takes its tasks. By urgency: of those that are ready.
enum class Order : std::uint8_t { as_added, by_urgency };

struct Resource {
  std::string name;
  int rank = -1;  // whose; -1: all ranks share it
  Order order = Order::as_added;
  // by_urgency: bytes that may be under way. A task is taken while any of the credit is left, which may go
  // below 0 by one task; what was taken is served in that order, whatever becomes ready meanwhile. 0: one
  // task at a time.
  double credit = 0;
  int in_flight = 1;  // tasks under way at once
  // A token bucket: so many seconds of idleness at most are made good, in that what is served next is over as
  // much sooner, but for start-ups.
  double burst = 0;
};

class Dag {
 public:
  int add_resource(const Resource& resource);
  // `after`: tasks that were added before, of which those below 0 are passed over.
  int add(const Task& task, std::span<const int> after);
  int add(const Task& task, std::initializer_list<int> after = {}) {
    return add(task, std::span<const int>(after.begin(), after.size()));
  }

  // Makes room for so many tasks that wait for so many others in all.
  void reserve(std::size_t tasks, std::size_t waits) {
    tasks_.reserve(tasks);
    first_after_.reserve(tasks + 1);
    after_.reserve(waits);
  }

  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Resource>& resources() const { return resources_; }
  std::span<const int> after(int task) const {
    const auto number = static_cast<std::size_t>(task);
    return std::span(after_).subspan(first_after_[number], first_after_[number + 1] - first_after_[number]);
  }

 private:
  std::vector<Task> tasks_;
  std::vector<int> after_;  // of all tasks, one task's behind another's
  std::vector<std::size_t> first_after_{0};
  std::vector<Resource> resources_;
};

struct Schedule {
  struct Times {
    double start = 0;
    double end = 0;
    // From when on nothing else holds it up: its start, or where its start-up ended before the resource was
    // free, when that became free.
    double since = 0;
    int cause =
        -1;  // the task whose end was at `since`, by being waited for or by using the resource; -1: none
  };
  std::vector<Times> tasks;  // as numbered by the DAG
};

// The earliest schedule: no resource waits while the task that it takes next could run. Every task runs, as
// those it waits for were added before it.
Schedule run(const Dag& dag);

// The tasks that set when `task` ended, earliest first: each is on its own since the one before it ended.
// Only those that end after `from`.
std::vector<int> critical_path(const Schedule& schedule, int task, double from);

}  // namespace talweg::train
