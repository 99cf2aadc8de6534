#include "bounded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>

#include <utility>

#include "arguments.h"
#include "base/fail.h"
#include "buffer.h"
#include "talweg/bounded_loss.h"

namespace py = pybind11;

namespace talweg::python {
namespace {

class PyBoundedSums {
 public:
  PyBoundedSums(std::shared_ptr<BoundedSums> sums, int rank) : sums_(std::move(sums)), rank_(rank) {}
  ~PyBoundedSums() {
    const py::gil_scoped_release no_gil;
    sums_.reset();
  }
  PyBoundedSums(const PyBoundedSums&) = delete;
  PyBoundedSums& operator=(const PyBoundedSums&) = delete;

  LossReport all_reduce(const py::object& array, Op op, const py::object& out, const py::object& residual,
                        const OptionalCounts<"layers">& layers, Argument<"depth", double> depth,
                        const py::object& timeout, Argument<"priority", int> priority) {
    BoundedCall call;
    std::pair<BufferPtr, BufferPtr> buffers;
    BufferPtr kept;
    take_or_tell(
        [&] {
          call.timeout = milliseconds_of(timeout);
          call.priority = priority;
          buffers = reduction_buffers(array, out);
          call.in = buffers.first->data();
          call.out = buffers.second->data();
          kept = complete(call, *buffers.first, op, residual, layers, depth);
        },
        [&] { sums_->all_reduce(refused(call)); });
    const py::gil_scoped_release no_gil;
    return sums_->all_reduce(call);
  }

  LossReport push(const py::object& array, const py::object& out, Op op, const py::object& residual,
                  const OptionalCounts<"layers">& layers, Argument<"depth", double> depth,
                  const py::object& timeout, Argument<"priority", int> priority) {
    BoundedCall call;
    BufferPtr in, part, kept;
    take_or_tell(
        [&] {
          call.timeout = milliseconds_of(timeout);
          call.priority = priority;
          in = readable(array, "array");
          call.in = in->data();
          kept = complete(call, *in, op, residual, layers, depth);
          part = part_buffer(out, "out", true);
          call.out = fitting(part, "out", call.count, call.type);
        },
        [&] { sums_->push(refused(call)); });
    const py::gil_scoped_release no_gil;
    return sums_->push(call);
  }

  void pull(const py::object& array, const py::object& part, const py::object& timeout,
            Argument<"priority", int> priority) {
    PullCall call;
    BufferPtr out, own;
    take_or_tell(
        [&] {
          call.timeout = milliseconds_of(timeout);
          call.priority = priority;
          out = writable(array, "array");
          own = part_buffer(part, "part", false);
          call.out = out->data();
          call.count = out->count();
          call.type = out->type();
          call.in = own ? fitting(own, "part", call.count, call.type)
                        : static_cast<std::byte*>(out->data()) +
                              sums_->part_of(rank_, call.count).first * size_of(call.type);
        },
        [&] { sums_->pull({.out = nullptr, .count = 1, .timeout = call.timeout}); });
    const py::gil_scoped_release no_gil;
    sums_->pull(call);
  }

  py::slice part_of(Argument<"rank", int> rank, Argument<"count", std::size_t> count) const {
    const BoundedPart part = sums_->part_of(rank, count);
    return {static_cast<py::ssize_t>(part.first), static_cast<py::ssize_t>(part.first + part.count), 1};
  }

  std::string explain(Argument<"count", std::size_t> count, const Text<"type">& type) const {
    const auto element = parse_data_type(type.value);
    if (!element) refuse("no element type is called \"{}\"", type.value);
    const py::gil_scoped_release no_gil;
    return sums_->explain(count, *element);
  }

  std::string flight_record() const { return sums_->flight_record(); }

 private:
  // What is wrong with what Python gives is for all ranks to hear, which may be in the call already: `tell`
  // makes one in its place that these sums refuse, as they do what they find wrong themselves.
  template <class Take, class Tell>
  static void take_or_tell(const Take& take, const Tell& tell) {
    try {
      take();
    } catch (...) {
      try {
        const py::gil_scoped_release no_gil;
        tell();
      } catch (const Error& e) {
        if (e.code() != ErrorCode::invalid_argument) throw;  // the others have not heard of it
      }
      throw;
    }
  }
  static BoundedCall refused(const BoundedCall& call) {
    return {.type = DataType::u8, .timeout = call.timeout};
  }
  static BufferPtr complete(BoundedCall& call, const Buffer& in, Op op, const py::object& residual,
                            const OptionalCounts<"layers">& layers, double depth) {
    call.count = in.count();
    call.type = in.type();
    call.reduction = op;
    call.depth = depth;
    if (layers.value) call.layers = *layers.value;
    return keep(residual, call);
  }
  static BufferPtr keep(const py::object& residual, BoundedCall& call) {
    if (residual.is_none()) return nullptr;
    BufferPtr kept = writable(residual, "residual");
    if (kept->type() != call.type || kept->count() != call.count)
      refuse("residual must have {} elements of {} like array, not {} of {}", call.count, name(call.type),
             kept->count(), name(kept->type()));
    call.residual = kept->data();
    return kept;
  }
  static BufferPtr part_buffer(const py::object& part, const char* what, bool written) {
    if (part.is_none()) return nullptr;
    return written ? writable(part, what) : readable(part, what);
  }
  // Of this rank's part of so many elements.
  void* fitting(const BufferPtr& part, const char* what, std::size_t count, DataType type) const {
    const std::size_t its = sums_->part_of(rank_, count).count;
    if (!part) return nullptr;  // where it is needed, the call is refused, and the other ranks hear of it
    if (part->type() != type || part->count() != its)
      refuse("{} must have {} elements of {}, this rank's part, not {} of {}", what, its, name(type),
             part->count(), name(part->type()));
    return part->data();
  }

  std::shared_ptr<BoundedSums> sums_;
  const int rank_;
};

LossPolicy policy_of(const std::string& name) {
  if (name != "zero" && name != "rescale")
    refuse("policy: expected \"zero\" or \"rescale\", got \"{}\"", name);
  return name == "zero" ? LossPolicy::zero : LossPolicy::rescale;
}

std::string represent(const LossReport& r) {
  return fmt::format(
      "LossReport(sent_bytes={}, lost_bytes={}, lost_important_bytes={}, exact={}, by_switch={}, "
      "lost_of_layer=[{}], "
      "lost_of_sender=[{}], "
      "packets_again={}, seconds={:.6f})",
      r.sent_bytes, r.lost_bytes, r.lost_important_bytes, r.exact ? "True" : "False",
      r.by_switch ? "True" : "False", fmt::join(r.lost_of_layer, ", "), fmt::join(r.lost_of_sender, ", "),
      r.packets_again, r.seconds);
}

}  // namespace

void add_bounded(py::module_& m) {
  py::class_<LossReport> report(m, "LossReport", Documented("LossReport").text);
  define_property(report, "LossReport.sent_bytes", [](const LossReport& r) { return r.sent_bytes; });
  define_property(report, "LossReport.lost_bytes", [](const LossReport& r) { return r.lost_bytes; });
  define_property(report, "LossReport.lost_important_bytes",
                  [](const LossReport& r) { return r.lost_important_bytes; });
  define_property(report, "LossReport.exact", [](const LossReport& r) { return r.exact; });
  define_property(report, "LossReport.by_switch", [](const LossReport& r) { return r.by_switch; });
  define_property(report, "LossReport.lost_of_layer", [](const LossReport& r) { return r.lost_of_layer; });
  define_property(report, "LossReport.lost_of_sender", [](const LossReport& r) { return r.lost_of_sender; });
  define_property(report, "LossReport.packets_again", [](const LossReport& r) { return r.packets_again; });
  define_property(report, "LossReport.seconds", [](const LossReport& r) { return r.seconds; });
  report.def("__repr__", &represent);

  py::class_<PyBoundedSums> sums(m, "BoundedSums", Documented("BoundedSums").text);
  define(sums, "BoundedSums.all_reduce", &PyBoundedSums::all_reduce, py::arg("array"),
         py::arg("op") = ReduceOp::sum, py::arg("out") = py::none(), py::arg("residual") = py::none(),
         py::arg("layers") = py::none(), py::arg("depth") = 0.0, py::arg("timeout") = py::none(),
         py::arg("priority") = 0);
  define(sums, "BoundedSums.push", &PyBoundedSums::push, py::arg("array"), py::arg("out") = py::none(),
         py::arg("op") = ReduceOp::sum, py::arg("residual") = py::none(), py::arg("layers") = py::none(),
         py::arg("depth") = 0.0, py::arg("timeout") = py::none(), py::arg("priority") = 0);
  define(sums, "BoundedSums.pull", &PyBoundedSums::pull, py::arg("array"), py::arg("part") = py::none(),
         py::arg("timeout") = py::none(), py::arg("priority") = 0);
  define(sums, "BoundedSums.part_of", &PyBoundedSums::part_of, py::arg("rank"), py::arg("count"));
  define(sums, "BoundedSums.explain", &PyBoundedSums::explain, py::arg("count"), py::arg("type") = "f32");
  define(sums, "BoundedSums.flight_record", &PyBoundedSums::flight_record);
}

py::object make_bounded_sums(const std::shared_ptr<Group>& group, BoundedLossOptions options,
                             const std::string& policy) {
  options.policy = policy_of(policy);
  auto made = [&] {
    const py::gil_scoped_release no_gil;
    return BoundedSums::make(*group, options);
  }();
  return py::cast(std::make_unique<PyBoundedSums>(std::move(made), group->rank()));
}

}  // namespace talweg::python
