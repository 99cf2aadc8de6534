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
  explicit PyBoundedSums(std::shared_ptr<BoundedSums> sums) : sums_(std::move(sums)) {}
  ~PyBoundedSums() {
    const py::gil_scoped_release no_gil;
    sums_.reset();
  }
  PyBoundedSums(const PyBoundedSums&) = delete;
  PyBoundedSums& operator=(const PyBoundedSums&) = delete;

  LossReport all_reduce(const py::object& array, Op op, const py::object& out, const py::object& residual,
                        const OptionalCounts<"layers">& layers, Argument<"depth", double> depth,
                        const py::object& timeout) {
    const auto buffers = reduction_buffers(array, out);
    const BufferPtr kept = residual.is_none() ? nullptr : writable(residual, "residual");
    BoundedCall call{.in = buffers.first->data(),
                     .out = buffers.second->data(),
                     .count = buffers.first->count(),
                     .type = buffers.first->type(),
                     .reduction = op,
                     .depth = depth,
                     .timeout = milliseconds_of(timeout)};
    if (kept) {
      if (kept->type() != call.type || kept->count() != call.count)
        refuse("residual must have {} elements of {} like array, not {} of {}", call.count, name(call.type),
               kept->count(), name(kept->type()));
      call.residual = kept->data();
    }
    if (layers.value) call.layers = *layers.value;
    const py::gil_scoped_release no_gil;
    return sums_->all_reduce(call);
  }

  std::string flight_record() const { return sums_->flight_record(); }

 private:
  std::shared_ptr<BoundedSums> sums_;
};

LossPolicy policy_of(const std::string& name) {
  if (name != "zero" && name != "rescale")
    refuse("policy: expected \"zero\" or \"rescale\", got \"{}\"", name);
  return name == "zero" ? LossPolicy::zero : LossPolicy::rescale;
}

std::string represent(const LossReport& r) {
  return fmt::format(
      "LossReport(sent_bytes={}, lost_bytes={}, lost_important_bytes={}, exact={}, lost_of_layer=[{}], "
      "lost_of_sender=[{}], "
      "packets_again={}, seconds={:.6f})",
      r.sent_bytes, r.lost_bytes, r.lost_important_bytes, r.exact ? "True" : "False",
      fmt::join(r.lost_of_layer, ", "), fmt::join(r.lost_of_sender, ", "), r.packets_again, r.seconds);
}

}  // namespace

void add_bounded(py::module_& m) {
  py::class_<LossReport> report(m, "LossReport", Documented("LossReport").text);
  define_property(report, "LossReport.sent_bytes", [](const LossReport& r) { return r.sent_bytes; });
  define_property(report, "LossReport.lost_bytes", [](const LossReport& r) { return r.lost_bytes; });
  define_property(report, "LossReport.lost_important_bytes",
                  [](const LossReport& r) { return r.lost_important_bytes; });
  define_property(report, "LossReport.exact", [](const LossReport& r) { return r.exact; });
  define_property(report, "LossReport.lost_of_layer", [](const LossReport& r) { return r.lost_of_layer; });
  define_property(report, "LossReport.lost_of_sender", [](const LossReport& r) { return r.lost_of_sender; });
  define_property(report, "LossReport.packets_again", [](const LossReport& r) { return r.packets_again; });
  define_property(report, "LossReport.seconds", [](const LossReport& r) { return r.seconds; });
  report.def("__repr__", &represent);

  py::class_<PyBoundedSums> sums(m, "BoundedSums", Documented("BoundedSums").text);
  define(sums, "BoundedSums.all_reduce", &PyBoundedSums::all_reduce, py::arg("array"),
         py::arg("op") = ReduceOp::sum, py::arg("out") = py::none(), py::arg("residual") = py::none(),
         py::arg("layers") = py::none(), py::arg("depth") = 0.0, py::arg("timeout") = py::none());
  define(sums, "BoundedSums.flight_record", &PyBoundedSums::flight_record);
}

py::object make_bounded_sums(const std::shared_ptr<Group>& group, BoundedLossOptions options,
                             const std::string& policy) {
  options.policy = policy_of(policy);
  auto made = [&] {
    const py::gil_scoped_release no_gil;
    return BoundedSums::make(*group, options);
  }();
  return py::cast(std::make_unique<PyBoundedSums>(std::move(made)));
}

}  // namespace talweg::python
