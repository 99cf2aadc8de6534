// The module talweg._core: a group and its works as Python sees them. The docstrings are in talweg/_core.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "arguments.h"
#include "base/fail.h"
#include "bounded.h"
#include "buffer.h"
#include "studies.h"
#include "talweg/group.h"

namespace py = pybind11;

namespace talweg::python {
namespace {

using std::chrono::milliseconds;
using Async = Argument<"async_op", bool>;
using Priority = Argument<"priority", int>;
using Root = Argument<"root", int>;
using Tag = Argument<"tag", std::uint32_t>;

// How long a wait may go without looking whether the user has pressed Ctrl-C.
constexpr milliseconds kSignalInterval{100};

// talweg.Error with its `code`, as Python raises and returns it.
py::object python_error(const Error& error) {
  py::object instance = py::module_::import("talweg._core").attr("Error")(error.what());
  instance.attr("code") = name(error.code());
  return instance;
}

class PyWork {
 public:
  PyWork(WorkPtr work, std::vector<BufferPtr> buffers)
      : work_(std::move(work)), buffers_(std::move(buffers)) {}

  bool wait(const py::object& timeout) {
    using Clock = std::chrono::steady_clock;
    const bool bounded = !timeout.is_none();
    const auto deadline = Clock::now() + milliseconds_of(timeout);
    while (true) {
      auto slice = kSignalInterval;
      if (bounded) slice = std::min(slice, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
      if (wait_slice(std::max(slice, milliseconds(0)))) return true;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (bounded && Clock::now() >= deadline) return false;
    }
  }

  bool is_completed() {
    const py::gil_scoped_release no_gil;
    return work_->test();
  }

  py::object exception() {
    const auto error = [&] {
      const py::gil_scoped_release no_gil;
      return work_->error();
    }();
    if (!error) return py::none();
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      return python_error(e);
    }
  }

  std::uint64_t sequence() const { return work_->sequence(); }
  int source_rank() const { return work_->source_rank(); }

 private:
  bool wait_slice(milliseconds slice) {
    const py::gil_scoped_release no_gil;
    return work_->wait_for(slice);
  }

  const WorkPtr work_;
  const std::vector<BufferPtr> buffers_;
};
using PyWorkPtr = std::shared_ptr<PyWork>;

class PyGroup {
 public:
  explicit PyGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~PyGroup() { close(); }
  PyGroup(const PyGroup&) = delete;
  PyGroup& operator=(const PyGroup&) = delete;

  // The group ends before the buffers that its works may still be using.
  void close() {
    let_go(std::exchange(group_, nullptr));
    std::exchange(in_flight_, {}).clear();
  }

  // A reference of the caller's own: another thread may close this while Python's lock is released.
  std::shared_ptr<Group> group() const {
    if (!group_) refuse("this group is closed");
    return group_;
  }

  std::size_t size() const { return static_cast<std::size_t>(group()->size()); }

  // Starts, and waits unless `async_op`; returns the work or None. `start(group, options)` runs without
  // Python's lock.
  template <class Start>
  py::object run(std::vector<BufferPtr> buffers, bool async_op, const py::object& timeout, int priority,
                 Start start) {
    CallOptions options;
    options.timeout = milliseconds_of(timeout);
    options.priority = priority;
    auto g = group();
    auto started = [&] {
      const py::gil_scoped_release no_gil;
      return start(*g, options);
    }();
    auto work = std::make_shared<PyWork>(std::move(started), std::move(buffers));
    remember(work);
    let_go(std::move(g));
    if (async_op) return py::cast(work);
    work->wait(py::none());  // interrupted, it leaves the work in flight
    return py::none();
  }

 private:
  static void let_go(std::shared_ptr<Group> group) {
    const py::gil_scoped_release no_gil;
    group.reset();
  }

  // A work that the user drops goes on, so its buffers must stay. To ask a work is to release Python's lock,
  // so other threads see a list that nobody is going through.
  void remember(const PyWorkPtr& work) {
    auto kept = std::exchange(in_flight_, {});
    std::erase_if(kept, [](const PyWorkPtr& w) { return w->is_completed(); });
    kept.push_back(work);
    in_flight_.insert(in_flight_.end(), kept.begin(), kept.end());
  }

  std::shared_ptr<Group> group_;
  std::vector<PyWorkPtr> in_flight_;
};

std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// `given`, or `total` dealt out evenly over the ranks.
Counts counts_or_even(const std::optional<Counts>& given, std::size_t total, const PyGroup& group,
                      const char* what) {
  if (!given) {
    if (total % group.size() != 0)
      refuse("the {} elements of {} cannot be dealt out evenly over {} ranks: give the counts", total, what,
             group.size());
    return Counts(group.size(), total / group.size());
  }
  if (given->size() != group.size())
    refuse("counts has {} entries, but the group has {} ranks", given->size(), group.size());
  if (sum(*given) != total) refuse("counts add up to {}, but {} has {} elements", sum(*given), what, total);
  return *given;
}

void check_own(const PyGroup& group, const Counts& counts, const Buffer& own, const char* what) {
  const auto mine = counts[static_cast<std::size_t>(group.group()->rank())];
  if (own.count() != mine) refuse("{} must have {} elements on this rank, not {}", what, mine, own.count());
}

// Of a gather or a scatter: the root has `whole` and knows all counts, the others only that of `own`.
Counts counts_of_rooted(const PyGroup& group, const std::optional<Counts>& given, const Buffer& own,
                        const char* own_name, const Buffer* whole, const char* whole_name) {
  if (whole == nullptr) {
    Counts counts(group.size(), 0);
    counts[static_cast<std::size_t>(group.group()->rank())] = own.count();
    return counts;
  }
  Counts counts = counts_or_even(given, whole->count(), group, whole_name);
  check_own(group, counts, own, own_name);
  return counts;
}

void check_root(const PyGroup& group, int root) {
  if (root < 0 || root >= group.group()->size())
    refuse("root {} is not a rank of a group of {}", root, group.group()->size());
}

py::object all_reduce(PyGroup& self, const py::object& array, Op op, const py::object& out, Async async_op,
                      const py::object& timeout, Priority priority) {
  const auto buffers = reduction_buffers(array, out);
  const auto& from = buffers.first;
  const auto& to = buffers.second;
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_all_reduce(from->data(), to->data(), from->count(), from->type(), op, o);
  });
}

py::object reduce(PyGroup& self, const py::object& array, Root root, Op op, const py::object& out,
                  Async async_op, const py::object& timeout, Priority priority) {
  check_root(self, root);
  const bool is_root = root == self.group()->rank();
  const auto buffers =
      is_root ? reduction_buffers(array, out) : std::pair{readable(array, "array"), BufferPtr()};
  const auto& from = buffers.first;
  const auto& to = buffers.second;
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_reduce(from->data(), to ? to->data() : nullptr, from->count(), from->type(), op, root, o);
  });
}

py::object broadcast(PyGroup& self, const py::object& array, Root root, Async async_op,
                     const py::object& timeout, Priority priority) {
  const auto data = writable(array, "array");
  return self.run({data}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_broadcast(data->data(), data->count(), data->type(), root, o);
  });
}

py::object reduce_scatter(PyGroup& self, const py::object& array, const py::object& out, Op op,
                          const OptionalCounts<"counts">& given, Async async_op, const py::object& timeout,
                          Priority priority) {
  const auto from = readable(array, "array");
  const auto to = writable(out, "out");
  check_types(*from, *to);
  const auto counts = counts_or_even(given, from->count(), self, "array");
  check_own(self, counts, *to, "out");
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_reduce_scatter(from->data(), to->data(), counts, from->type(), op, o);
  });
}

py::object all_gather(PyGroup& self, const py::object& array, const py::object& out,
                      const OptionalCounts<"counts">& given, Async async_op, const py::object& timeout,
                      Priority priority) {
  const auto from = readable(array, "array");
  const auto to = writable(out, "out");
  check_types(*from, *to);
  const auto counts = counts_or_even(given, to->count(), self, "out");
  check_own(self, counts, *from, "array");
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_all_gather(from->data(), to->data(), counts, from->type(), o);
  });
}

py::object all_to_all(PyGroup& self, const py::object& array, const py::object& out,
                      const OptionalCounts<"in_counts">& given_in,
                      const OptionalCounts<"out_counts">& given_out, Async async_op,
                      const py::object& timeout, Priority priority) {
  const auto from = readable(array, "array");
  const auto to = writable(out, "out");
  check_types(*from, *to);
  const auto in_counts = counts_or_even(given_in, from->count(), self, "array");
  const auto out_counts = counts_or_even(given_out, to->count(), self, "out");
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_all_to_all(from->data(), in_counts, to->data(), out_counts, from->type(), o);
  });
}

py::object gather(PyGroup& self, const py::object& array, const py::object& out, Root root,
                  const OptionalCounts<"counts">& given, Async async_op, const py::object& timeout,
                  Priority priority) {
  check_root(self, root);
  const auto from = readable(array, "array");
  const bool is_root = root == self.group()->rank();
  if (is_root && out.is_none()) refuse("gather needs out on the root");
  const auto to = is_root ? writable(out, "out") : nullptr;
  if (is_root) check_types(*from, *to);
  const Counts counts = counts_of_rooted(self, given, *from, "array", to.get(), "out");
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_gather(from->data(), to ? to->data() : nullptr, counts, from->type(), root, o);
  });
}

py::object scatter(PyGroup& self, const py::object& array, const py::object& out, Root root,
                   const OptionalCounts<"counts">& given, Async async_op, const py::object& timeout,
                   Priority priority) {
  check_root(self, root);
  const auto to = writable(out, "out");
  const bool is_root = root == self.group()->rank();
  if (is_root && array.is_none()) refuse("scatter needs array on the root");
  const auto from = is_root ? readable(array, "array") : nullptr;
  if (is_root) check_types(*from, *to);
  const Counts counts = counts_of_rooted(self, given, *to, "out", from.get(), "array");
  return self.run({from, to}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_scatter(from ? from->data() : nullptr, to->data(), counts, to->type(), root, o);
  });
}

py::object send(PyGroup& self, const py::object& array, Argument<"destination", int> destination, Tag tag,
                Async async_op, const py::object& timeout, Priority priority) {
  const auto data = readable(array, "array");
  return self.run({data}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_send(data->data(), data->count(), data->type(), destination, tag, o);
  });
}

py::object recv(PyGroup& self, const py::object& array, Argument<"source", int> source, Tag tag,
                Async async_op, const py::object& timeout, Priority priority) {
  const auto data = writable(array, "array");
  return self.run({data}, async_op, timeout, priority, [&](Group& g, const CallOptions& o) {
    return g.start_recv(data->data(), data->count(), data->type(), source, tag, o);
  });
}

py::object barrier(PyGroup& self, Async async_op, const py::object& timeout, Priority priority) {
  return self.run({}, async_op, timeout, priority,
                  [](Group& g, const CallOptions& o) { return g.start_barrier(o); });
}

std::unique_ptr<PyGroup> init(Argument<"rank", int> rank, Argument<"size", int> size,
                              const Text<"store">& given_store, const Text<"prefix">& prefix,
                              const py::object& timeout, const Text<"interface">& interface,
                              const Text<"cluster">& cluster, const Text<"algorithm">& algorithm,
                              const Text<"switch">& switch_address,
                              const Text<"switch_key_file">& switch_key_file) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.prefix = prefix;
  options.timeout = milliseconds_of(timeout);
  options.interface = interface;
  options.cluster_file = cluster;
  options.algorithm = algorithm;
  options.switch_address = switch_address;
  options.switch_key_file = switch_key_file;
  if (const std::string& store = given_store; !store.empty()) {
    constexpr std::string_view kFile = "file:";
    if (store.rfind(kFile, 0) != 0) refuse("store is \"file:/path\" or absent, not \"{}\"", store);
    options.store = file_store(store.substr(kFile.size()));
  }
  const py::gil_scoped_release no_gil;
  return std::make_unique<PyGroup>(Group::join(options));
}

std::unique_ptr<PyGroup> split(PyGroup& self, const Argument<"ranks", std::vector<int>>& ranks) {
  auto part = [&] {
    const py::gil_scoped_release no_gil;
    return self.group()->split(ranks.value);
  }();
  return part ? std::make_unique<PyGroup>(std::move(part)) : nullptr;
}

std::string explain(const PyGroup& self, const Text<"operation">& operation,
                    Argument<"count", std::size_t> count, const Text<"type">& type) {
  const auto collective = parse_collective(operation.value);
  const auto element = parse_data_type(type.value);
  if (!collective) refuse("no collective is called \"{}\"", operation.value);
  if (!element) refuse("no element type is called \"{}\"", type.value);
  const py::gil_scoped_release no_gil;
  return self.group()->explain(*collective, count, *element);
}

py::dict statistics(const PyGroup& self) {
  const GroupStatistics s = self.group()->statistics();
  py::dict result;
  result["bytes_sent"] = s.bytes_sent;
  result["bytes_received"] = s.bytes_received;
  result["peak_buffer_bytes"] = s.peak_buffer_bytes;
  result["shared_memory_bytes"] = s.shared_memory_bytes;
  result["bounded_calls"] = s.bounded_calls;
  result["bounded_sent_bytes"] = s.bounded_sent_bytes;
  result["bounded_lost_bytes"] = s.bounded_lost_bytes;
  result["bounded_packets_again"] = s.bounded_packets_again;
  return result;
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& e) {
    const py::object instance = python_error(e);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(instance.ptr())), instance.ptr());
  }
}

}  // namespace
}  // namespace talweg::python

PYBIND11_MODULE(_core, m) {
  using namespace talweg::python;
  using talweg::ReduceOp;

  py::options options;
  options.disable_function_signatures().disable_enum_members_docstring();

  m.attr("Error") = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc("talweg.Error", Documented("Error").text, PyExc_RuntimeError, nullptr));
  py::register_local_exception_translator(&translate);
  m.attr("ANY_RANK") = talweg::kAnyRank;
  m.attr("__version__") = TALWEG_VERSION;

  py::enum_<ReduceOp>(m, "ReduceOp", Documented("ReduceOp").text)
      .value("SUM", ReduceOp::sum)
      .value("PRODUCT", ReduceOp::product)
      .value("MIN", ReduceOp::min)
      .value("MAX", ReduceOp::max)
      .value("BIT_AND", ReduceOp::bit_and)
      .value("BIT_OR", ReduceOp::bit_or)
      .value("BIT_XOR", ReduceOp::bit_xor)
      .value("AVG", ReduceOp::avg)
      .export_values();

  py::class_<PyWork, PyWorkPtr> work(m, "Work", Documented("Work").text);
  define(work, "Work.wait", &PyWork::wait, py::arg("timeout") = py::none());
  define(work, "Work.is_completed", &PyWork::is_completed);
  define(work, "Work.exception", &PyWork::exception);
  define_property(work, "Work.sequence", &PyWork::sequence);
  define_property(work, "Work.source_rank", &PyWork::source_rank);

  // What every collective takes after its own arguments.
  const auto async_op = py::arg("async_op") = false;
  const auto timeout = py::arg("timeout") = py::none();
  const auto priority = py::arg("priority") = 0;
  const auto counts = py::arg("counts") = py::none();
  const auto op = py::arg("op") = ReduceOp::sum;
  const auto root = py::arg("root") = 0;
  const auto tag = py::arg("tag") = 0;
  const auto array = py::arg("array");
  const auto out = py::arg("out");
  const auto no_out = py::arg("out") = py::none();

  add_bounded(m);
  py::class_<PyGroup> group(m, "Group", Documented("Group").text);
  define(group, "Group.all_reduce", &all_reduce, array, op, no_out, async_op, timeout, priority);
  define(group, "Group.reduce", &reduce, array, root, op, no_out, async_op, timeout, priority);
  define(group, "Group.broadcast", &broadcast, array, root, async_op, timeout, priority);
  define(group, "Group.reduce_scatter", &reduce_scatter, array, out, op, counts, async_op, timeout, priority);
  define(group, "Group.all_gather", &all_gather, array, out, counts, async_op, timeout, priority);
  define(group, "Group.all_to_all", &all_to_all, array, out, py::arg("in_counts") = py::none(),
         py::arg("out_counts") = py::none(), async_op, timeout, priority);
  define(group, "Group.gather", &gather, array, no_out, root, counts, async_op, timeout, priority);
  define(group, "Group.scatter", &scatter, array, out, root, counts, async_op, timeout, priority);
  define(group, "Group.send", &send, array, py::arg("destination"), tag, async_op, timeout, priority);
  define(group, "Group.recv", &recv, array, py::arg("source") = talweg::kAnyRank, tag, async_op, timeout,
         priority);
  define(group, "Group.barrier", &barrier, async_op, timeout, priority);
  define(group, "Group.split", &split, py::arg("ranks"));
  define(
      group, "Group.bounded_sums",
      [](const PyGroup& g, Argument<"p", double> p, const Text<"policy">& policy,
         Argument<"packet_bytes", std::size_t> packet_bytes, Argument<"droppable", double> droppable,
         Argument<"droppable_back", std::optional<double>> droppable_back,
         Argument<"keep_important", bool> keep_important, Argument<"queues", int> queues,
         Argument<"back_first", bool> back_first,
         const Argument<"servers", std::optional<std::vector<int>>>& servers,
         Argument<"p_sender", std::optional<double>> p_sender,
         Argument<"p_call", std::optional<double>> p_call) {
        const std::optional<double> back = droppable_back;
        const talweg::PacketClasses classes{.droppable_front = droppable,
                                            .droppable_back = back.value_or(droppable),
                                            .keep_important = keep_important,
                                            .queues = queues,
                                            .back_first = back_first};
        const std::optional<std::vector<int>> sum = servers;
        return make_bounded_sums(g.group(),
                                 {.p = p,
                                  .p_sender = p_sender,
                                  .p_call = p_call,
                                  .packet_bytes = packet_bytes,
                                  .classes = classes,
                                  .servers = sum.value_or(std::vector<int>{})},
                                 policy);
      },
      py::arg("p") = 0.01, py::arg("policy") = "zero", py::arg("packet_bytes") = 0,
      py::arg("droppable") = 0.0, py::arg("droppable_back") = py::none(), py::arg("keep_important") = false,
      py::arg("queues") = 1, py::arg("back_first") = false, py::arg("servers") = py::none(),
      py::arg("p_sender") = py::none(), py::arg("p_call") = py::none());
  define(
      group, "Group.abort",
      [](PyGroup& g, const Text<"why">& why) {
        const py::gil_scoped_release no_gil;
        g.group()->abort(why);
      },
      py::arg("why"));
  define(
      group, "Group.set_timeout",
      [](PyGroup& g, const py::object& t) {
        if (t.is_none()) no_timeout(t);
        g.group()->set_timeout(milliseconds_of(t));
      },
      py::arg("timeout"));
  define(group, "Group.explain", &explain, py::arg("operation"), py::arg("count"), py::arg("type"));
  define(
      group, "Group.host_of", [](const PyGroup& g, Argument<"rank", int> r) { return g.group()->host_of(r); },
      py::arg("rank"));
  define(group, "Group.describe", [](const PyGroup& g) { return g.group()->describe(); });
  define(group, "Group.flight_record", [](const PyGroup& g) { return g.group()->flight_record(); });
  define(group, "Group.statistics", &statistics);
  define(group, "Group.close", &PyGroup::close);
  define(group, "Group.__enter__", [](py::object self) { return self; });
  define(group, "Group.__exit__", [](PyGroup& g, const py::args&) { g.close(); });
  define_property(group, "Group.rank", [](const PyGroup& g) { return g.group()->rank(); });
  define_property(group, "Group.size", [](const PyGroup& g) { return g.group()->size(); });

  define(m, "init", &init, py::arg("rank") = -1, py::arg("size") = -1, py::arg("store") = "",
         py::arg("prefix") = "", timeout, py::arg("interface") = "", py::arg("cluster") = "",
         py::arg("algorithm") = "", py::arg("switch") = "", py::arg("switch_key_file") = "");
  add_studies(m);
}
