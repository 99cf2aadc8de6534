#include "step_log.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

namespace talweg::torch_face {
namespace {

namespace py = pybind11;
using torch::autograd::Node;

class GradientHook : public torch::autograd::FunctionPreHook {
 public:
  GradientHook(std::shared_ptr<StepLog> log, StepLog::Kind kind, int index)
      : log_(std::move(log)), kind_(kind), index_(index) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    log_->note_gradient(kind_, index_);
    return gradients;
  }

 private:
  const std::shared_ptr<StepLog> log_;
  const StepLog::Kind kind_;
  const int index_;
};

std::int64_t monotonic_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

template <class Use>
void each_tensor(const py::handle& value, Use&& use) {
  if (THPVariable_Check(value.ptr())) {
    use(THPVariable_Unpack(value.ptr()));
  } else if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
    for (const py::handle one : py::reinterpret_borrow<py::sequence>(value))
      if (THPVariable_Check(one.ptr())) use(THPVariable_Unpack(one.ptr()));
  } else if (PyDict_Check(value.ptr())) {
    for (const auto& [key, one] : py::reinterpret_borrow<py::dict>(value))
      if (THPVariable_Check(one.ptr())) use(THPVariable_Unpack(one.ptr()));
  }
}

}  // namespace

StepLog::StepLog(int layers, const py::object& now)
    : now_(now.is_none() ? nullptr : py::object(now).release().ptr()), sources_(layers) {}

StepLog::~StepLog() {
  if (now_ == nullptr || !Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  for (const Entry& entry : entries_) Py_XDECREF(entry.stamp);
  Py_DECREF(now_);
}

void StepLog::append(int kind, int index) {
  Entry entry{static_cast<std::uint8_t>(kind), index, 0, nullptr};
  if (now_ == nullptr) {
    entry.ns = monotonic_ns();
  } else {
    const py::gil_scoped_acquire gil;
    py::object stamp = py::none();
    if (kind != kStep) stamp = py::reinterpret_borrow<py::object>(now_)();
    entry.stamp = stamp.release().ptr();
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back(entry);
}

void StepLog::note(int kind, int index) {
  append(kind, index);
}

void StepLog::pass_begins() {
  append(kForward, -1);
  live_ = true;
  const std::lock_guard lock(mutex_);
  waiting_ = true;
}

void StepLog::pass_ends() {
  if (live_) append(kForwardEnd, -1);
  live_ = false;
  last_ = nullptr;
  made_by_.clear();
  outputs_.clear();
}

void StepLog::hook(const NodePtr& node, Kind kind, int index) {
  node->add_pre_hook(std::make_unique<GradientHook>(shared_from_this(), kind, index));
}

void StepLog::note_gradient(Kind kind, int index) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    first = std::exchange(waiting_, false);
  }
  if (first) {
    // DDP asks for its own callback when it has sent the last bucket: this one runs before that, and what it
    // asks for itself runs after it.
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([&engine, self = shared_from_this()] {
      self->append(kBackwardEnd, -1);
      engine.queue_callback([self] { self->append(kSyncEnd, -1); });
    });
  }
  append(kind, index);
}

PyObject* StepLog::call(int layer, PyObject* forward, PyObject* arguments, PyObject* named) {
  if (!live_) return PyObject_Call(forward, arguments, named);
  NodePtr first;
  const auto arrives = [&](const at::Tensor& tensor) {
    const NodePtr& node = tensor.grad_fn();
    if (node == nullptr) return;
    if (first == nullptr) first = node;
    if (node != last_)
      hook(node, kGradEnd, layer);  // else the layer before begins there, which says the same
    if (look_for_sources) look(layer, node);
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    each_tensor(PyTuple_GET_ITEM(arguments, i), arrives);
  if (named != nullptr) each_tensor(named, arrives);
  append(kLayerIn, layer);
  auto output = py::reinterpret_steal<py::object>(PyObject_Call(forward, arguments, named));
  if (!output) return nullptr;
  append(kLayerOut, layer);
  each_tensor(output, [&](const at::Tensor& tensor) { leaves(layer, tensor, first.get()); });
  return output.release().ptr();
}

PyObject* call_layer(PyObject* self, PyObject* arguments, PyObject* named) {
  try {
    const auto* call = py::cast<const LayerCall*>(py::handle(self));
    return call->log->call(call->layer, call->forward.ptr(), arguments, named);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// A layer that hands its input on has made no node, and a container's last node is its last layer's.
void StepLog::leaves(int layer, const at::Tensor& output, const Node* input) {
  const NodePtr& node = output.grad_fn();
  if (node == nullptr || node.get() == input || node == last_) return;
  hook(node, kGrad, layer);
  last_ = node;
  if (look_for_sources && made_by_.try_emplace(node.get(), layer).second) outputs_.push_back(node);
}

void StepLog::look(int layer, const NodePtr& node) {
  std::unordered_set<const Node*> seen{node.get()};
  std::vector<const Node*> waiting{node.get()};
  while (!waiting.empty()) {
    const Node* one = waiting.back();
    waiting.pop_back();
    if (const auto found = made_by_.find(one); found != made_by_.end()) {
      sources_.at(layer).insert(found->second);
      continue;
    }
    for (const auto& edge : one->next_edges())
      if (edge.function != nullptr && seen.insert(edge.function.get()).second)
        waiting.push_back(edge.function.get());
  }
}

void StepLog::watch_parameters(const std::vector<at::Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const NodePtr node = torch::autograd::impl::grad_accumulator(parameters[i]);
    auto hook = std::make_unique<GradientHook>(shared_from_this(), kReady, static_cast<int>(i));
    on_parameters_.emplace_back(node, hook.get());
    node->add_pre_hook(std::move(hook));
  }
}

void StepLog::end() {
  pass_ends();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  for (const auto& [node, hook] : on_parameters_)
    std::erase_if(node->pre_hooks(), [hook = hook](const auto& one) { return one.get() == hook; });
  on_parameters_.clear();
}

py::list StepLog::entries() const {
  const std::lock_guard lock(mutex_);
  py::list list;
  for (const Entry& e : entries_) {
    const py::object stamp = e.stamp != nullptr ? py::reinterpret_borrow<py::object>(e.stamp)
                             : e.kind == kStep  ? py::object(py::none())
                                                : py::object(py::int_(e.ns));
    list.append(py::make_tuple(e.kind, e.index, stamp));
  }
  return list;
}

}  // namespace talweg::torch_face
