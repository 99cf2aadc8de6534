// What happens when in the training steps of a model, noted without Python's lock where torch calls from C++:
// the forward pass by what stands in front of each layer's forward(), the backward pass by hooks on nodes
// that the graph has anyway. A layer's backward pass begins with the node that made its output and ends with
// the one that made its input. (Torch's own backward hooks on modules put functions into the graph, which
// forbids layers that write in place, and take the lock.)
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace talweg::torch_face {

// Any thread may note. Everything else wants Python's lock and happens between steps, or in the thread of the
// forward pass.
class StepLog : public std::enable_shared_from_this<StepLog> {
 public:
  // As bindings/python/talweg/_watching.py has them, which says what each means.
  enum Kind : std::uint8_t {
    kStep,
    kForward,
    kLayerIn,
    kLayerOut,
    kForwardEnd,
    kGrad,
    kGradEnd,
    kReady,
    kBackwardEnd,
    kSyncEnd
  };

  // `now` makes a stamp, any object; None: stamps are the monotonic time in nanoseconds, without the lock.
  StepLog(int layers, const pybind11::object& now);
  // The last hook may go on any thread: takes the lock.
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  void note(int kind, int index);
  void pass_begins();
  void pass_ends();
  // forward(*arguments, **named) of a layer, with a note before and after it: a new reference, or null with
  // Python's error set. `named` may be null.
  PyObject* call(int layer, PyObject* forward, PyObject* arguments, PyObject* named);
  void watch_parameters(const std::vector<at::Tensor>& parameters);
  // From now on nothing is noted but what `note` is asked for: the last all-reduces may still arrive.
  void end();

  // [(kind, index, stamp)], as they happened.
  pybind11::list entries() const;
  // For each layer those whose outputs it reads; looked for as long as `look_for_sources` is set.
  const std::vector<std::set<int>>& sources() const { return sources_; }
  bool look_for_sources = true;

  // From hooks, on any thread.
  void note_gradient(Kind kind, int index);

 private:
  // Releases of torch differ in what holds a node.
  using NodePtr = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;
  struct Entry {
    std::uint8_t kind;
    std::int32_t index;
    std::int64_t ns;
    PyObject* stamp;  // owned; null without `now`
  };
  void append(int kind, int index);
  void hook(const NodePtr& node, Kind kind, int index);
  void look(int layer, const NodePtr& node);
  void leaves(int layer, const at::Tensor& output, const torch::autograd::Node* input);

  PyObject* const now_;  // owned; null: none
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // under mutex_
  bool ended_ = false;          // likewise
  bool live_ = false;           // within the forward pass of the whole model
  bool waiting_ = false;        // for its backward pass; under mutex_
  NodePtr last_;                // of the last layer's output
  std::vector<NodePtr> outputs_;
  std::unordered_map<const torch::autograd::Node*, int> made_by_;
  std::vector<std::set<int>> sources_;
  std::vector<std::pair<NodePtr, torch::autograd::FunctionPreHook*>> on_parameters_;
};

// What stands in front of one layer's forward().
struct LayerCall {
  std::shared_ptr<StepLog> log;
  int layer;
  pybind11::object forward;
};
// The slot tp_call of its type.
PyObject* call_layer(PyObject* self, PyObject* arguments, PyObject* named);

}  // namespace talweg::torch_face
