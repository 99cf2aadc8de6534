// What Python sees: `create` for torch.distributed's registry, and what a Talweg group can tell about itself.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "bounded.h"
#include "gradients.h"
#include "group/switch_terms.h"
#include "python/documented.h"
#include "step_log.h"
#include "types.h"
#include "work.h"

namespace py = pybind11;

namespace talweg::torch_face {
namespace {

c10::intrusive_ptr<TalwegBackend> create(const c10d::DistributedBackendOptions& options,
                                         const c10::intrusive_ptr<TalwegBackend>& parent) {
  auto backend = [&] {
    const py::gil_scoped_release no_gil;
    return c10::make_intrusive<TalwegBackend>(options, parent.get());
  }();
  // For programs that end without destroy_process_group: no callback may be left running when Python is gone.
  const py::cpp_function end([weak = c10::weak_intrusive_ptr<TalwegBackend>(backend)] {
    if (const auto last = weak.lock()) last->shutdown();
  });
  py::module_::import("atexit").attr("register")(end);
  return backend;
}

std::string explain(const TalwegBackend& backend, const std::string& operation, std::size_t count,
                    const std::string& type) {
  const auto collective = parse_collective(operation);
  const auto element = parse_data_type(type);
  check_value(collective, "talweg: no collective is called ", operation);
  check_value(element, "talweg: no element type is called ", type);
  const py::gil_scoped_release no_gil;
  return with_torch_errors([&] { return backend.group()->explain(*collective, count, *element); });
}

py::dict statistics(const TalwegBackend& backend) {
  const GroupStatistics s = backend.group()->statistics();
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

const char* name_of(group::SwitchSparse sparse) {
  constexpr const char* kNames[] = {"none", "blocks", "pairs", "chosen"};
  return kNames[static_cast<std::size_t>(sparse)];
}

py::object switch_terms(const TalwegBackend& backend) {
  const auto terms = group::switch_terms(*backend.group());
  if (!terms) return py::none();
  py::dict result;
  result["always"] = terms->always;
  result["sparse"] = name_of(terms->sparse);
  result["float_bytes"] = terms->float_bytes;
  result["block"] = terms->block;
  return result;
}

const char* name_of(steer::Sending sending) {
  switch (sending) {
    case steer::Sending::dense:
      return "dense";
    case steer::Sending::elements:
      return "elements";
    case steer::Sending::blocks:
      break;
  }
  return "blocks";
}

// What talweg.torch.hooks is made of.
void add_gradients(py::module_& m) {
  using python::Documented;
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  const auto rank = py::arg("rank");
  const auto residual = py::arg("residual") = py::none();
  const auto seed = py::arg("seed") = py::none();
  const auto step = py::arg("step") = 0;
  const auto define = [](auto& type, Documented method, auto function, const auto&... arguments) {
    type.def(method.name, function, arguments..., method.text);
  };

  py::class_<Shards> shards(m, "Shards", Documented("Shards").text);
  shards.def(py::init<const std::vector<std::size_t>&, const std::vector<std::uint64_t>&, int,
                      const std::string&, std::uint32_t>(),
             py::arg("counts"), py::arg("numbers"), py::arg("ranks"), py::arg("code"), py::arg("block") = 256,
             Documented("Shards.__init__").text);
  define(shards, "Shards.bytes", &Shards::bytes);
  define(shards, "Shards.shard_counts", &Shards::shard_counts, rank);
  define(shards, "Shards.encode", &Shards::encode, no_gil, rank, py::arg("gradients"), residual, seed, step);
  define(shards, "Shards.sum", &Shards::sum, no_gil, rank, py::arg("received"), residual, seed, step);
  define(shards, "Shards.decode", &Shards::decode, no_gil, py::arg("gathered"), py::arg("out"));

  py::class_<Rows> rows(m, "Rows", Documented("Rows").text);
  rows.def(py::init<const std::vector<std::size_t>&, std::size_t>(), py::arg("counts"), py::arg("width"),
           Documented("Rows.__init__").text);
  define(rows, "Rows.top", &Rows::top, no_gil, py::arg("gradients"), py::arg("ratio"));
  define(rows, "Rows.at_least", &Rows::at_least, no_gil, py::arg("gradients"), py::arg("least"));
  define(rows, "Rows.random", &Rows::random, no_gil, py::arg("ratio"), py::arg("seed"), py::arg("numbers"));
  define(rows, "Rows.packed_words", &Rows::packed_words, py::arg("chosen"));
  define(rows, "Rows.pack", &Rows::pack, no_gil, py::arg("gradients"), py::arg("chosen"), residual);
  define(rows, "Rows.add", &Rows::add, no_gil, py::arg("payload"), py::arg("sums"));

  py::class_<steer::SendingChooser> chooser(m, "SendingChooser", Documented("SendingChooser").text);
  chooser.def(py::init([](std::size_t elements, int ranks, std::uint32_t block) {
                steer::SendingCosts costs;
                costs.ranks = ranks;
                costs.block = block;
                return with_torch_errors([&] { return steer::SendingChooser(elements, costs); });
              }),
              py::arg("elements"), py::arg("ranks"), py::arg("block"),
              Documented("SendingChooser.__init__").text);
  define(chooser, "SendingChooser.now", [](const steer::SendingChooser& c) { return name_of(c.now()); });
  define(chooser, "SendingChooser.is_dear", &steer::SendingChooser::is_dear, py::arg("words_of_all"));
  define(
      chooser, "SendingChooser.observe",
      [](steer::SendingChooser& c, std::size_t union_elements, std::size_t union_blocks,
         std::optional<double> own_elements, std::optional<double> own_blocks) {
        c.observe({union_elements, union_blocks, own_elements, own_blocks});
      },
      py::arg("union_elements"), py::arg("union_blocks"), py::arg("own_elements") = py::none(),
      py::arg("own_blocks") = py::none());
}

void add_bounded(py::module_& m) {
  using python::Documented;
  py::class_<LossySums> sums(m, "BoundedSums", Documented("BoundedSums").text);
  constexpr Documented kAllReduce = "BoundedSums.all_reduce";
  sums.def(
      kAllReduce.name,
      [](LossySums& self, const at::Tensor& values, const std::optional<at::Tensor>& residual,
         const std::vector<std::size_t>& layers, bool average, double depth, int priority) {
        const LossReport report = [&] {
          const py::gil_scoped_release no_gil;
          return self.all_reduce(values, residual, layers, average, depth, priority);
        }();
        py::dict said;
        said["sent_bytes"] = report.sent_bytes;
        said["lost_bytes"] = report.lost_bytes;
        said["lost_important_bytes"] = report.lost_important_bytes;
        said["exact"] = report.exact;
        said["by_switch"] = report.by_switch;
        said["lost_of_layer"] = report.lost_of_layer;
        said["packets_again"] = report.packets_again;
        return said;
      },
      py::arg("values"), py::arg("residual") = py::none(), py::arg("layers") = std::vector<std::size_t>(),
      py::arg("average") = false, py::arg("depth") = 0.0, py::arg("priority") = 0, kAllReduce.text);
  constexpr Documented kExplain = "BoundedSums.explain";
  sums.def(kExplain.name, &LossySums::explain, py::call_guard<py::gil_scoped_release>(), py::arg("count"),
           py::arg("type") = "f32", kExplain.text);
}

}  // namespace
}  // namespace talweg::torch_face

PYBIND11_MODULE(_c10d, m) {
  using namespace talweg::torch_face;
  using talweg::python::Documented;
  py::options options;
  options.disable_function_signatures();  // the stub has better ones
  // The base class is torch's: it must be known before a class can be derived from it.
  py::module_::import("torch.distributed");
  for (const auto& [error, base] : {std::pair{Documented("CallValueError"), PyExc_ValueError},
                                    std::pair{Documented("CallTypeError"), PyExc_TypeError}}) {
    const py::tuple bases = py::make_tuple(py::handle(base), py::handle(PyExc_RuntimeError));
    m.attr(error.name) = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
        (std::string("talweg._c10d.") + error.name).c_str(), error.text, bases.ptr(), nullptr));
  }
  py::class_<TalwegBackend, c10d::Backend, c10::intrusive_ptr<TalwegBackend>> backend(
      m, "Backend", Documented("Backend").text);
  const auto define = [&](Documented method, auto function, const auto&... arguments) {
    backend.def(method.name, function, arguments..., method.text);
  };
  backend.def("_get_sequence_number_for_group", &TalwegBackend::getSequenceNumberForGroup);
  define("Backend.describe", [](const TalwegBackend& b) { return b.group()->describe(); });
  define("Backend.explain", &explain, py::arg("operation"), py::arg("count"), py::arg("type"));
  define("Backend.statistics", &statistics);
  define("Backend.switch_terms", &switch_terms);
  define("Backend.flight_record", [](const TalwegBackend& b) { return b.group()->flight_record(); });
  define(
      "Backend.all_reduce_with_priority",
      [](TalwegBackend& b, TalwegBackend::Tensors tensors, const c10d::AllreduceOptions& options,
         int priority) {
        const py::gil_scoped_release no_gil;
        return b.allreduce_with_priority(tensors, options, priority);
      },
      py::arg("tensors"), py::arg("options"), py::arg("priority"));
  define(
      "Backend.bounded_sums",
      [](const TalwegBackend& b, double p, const std::string& policy, std::size_t packet_bytes,
         const std::pair<double, double>& droppable, bool keep_important, int queues, bool back_first,
         const std::vector<int>& servers, std::optional<double> p_sender, std::optional<double> p_call) {
        const py::gil_scoped_release no_gil;
        return std::make_unique<LossySums>(*b.group(), p, policy, packet_bytes,
                                           talweg::PacketClasses{.droppable_front = droppable.first,
                                                                 .droppable_back = droppable.second,
                                                                 .keep_important = keep_important,
                                                                 .queues = queues,
                                                                 .back_first = back_first},
                                           servers, p_sender, p_call);
      },
      py::arg("p"), py::arg("policy") = "zero", py::arg("packet_bytes") = 0,
      py::arg("droppable") = std::pair(0.0, 0.0), py::arg("keep_important") = false, py::arg("queues") = 1,
      py::arg("back_first") = false, py::arg("servers") = std::vector<int>{},
      py::arg("p_sender") = py::none(), py::arg("p_call") = py::none());
  py::class_<StepLog, std::shared_ptr<StepLog>> log(m, "StepLog", Documented("StepLog").text);
  log.def(py::init<int, const py::object&>(), py::arg("layers"), py::arg("now"),
          Documented("StepLog.__init__").text);
  const auto define_log = [&](Documented method, auto function) {
    log.def(method.name, function, method.text);
  };
  define_log("StepLog.note", &StepLog::note);
  define_log("StepLog.pass_begins", &StepLog::pass_begins);
  define_log("StepLog.pass_ends", &StepLog::pass_ends);
  define_log("StepLog.in_front_of", [](const std::shared_ptr<StepLog>& self, int layer, py::object forward) {
    return LayerCall{self, layer, std::move(forward)};
  });
  define_log("StepLog.watch_parameters", &StepLog::watch_parameters);
  define_log("StepLog.end", &StepLog::end);
  define_log("StepLog.entries", &StepLog::entries);
  define_log("StepLog.sources", &StepLog::sources);
  log.def_readwrite("look_for_sources", &StepLog::look_for_sources);
  // Not def("__call__"): what pybind11 does around a call takes longer than all that is noted of a layer.
  py::class_<LayerCall>(
      m, "_LayerCall", py::dynamic_attr(),
      py::custom_type_setup([](PyHeapTypeObject* type) { type->ht_type.tp_call = &call_layer; }));
  m.def("create", &create, py::arg("options"), py::arg("parent") = py::none(), Documented("create").text);
  m.def(
      "way_of",
      [](const c10::intrusive_ptr<c10d::Work>& work) {
        const auto* const own = dynamic_cast<const TalwegWork*>(work.get());
        return own == nullptr ? "" : own->way();
      },
      py::arg("work"), Documented("way_of").text);
  add_gradients(m);
  add_bounded(m);
}
