// Torch's element types, reductions and errors in Talweg's words, and back.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/Exceptions.h>

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>

#include "talweg/error.h"
#include "talweg/types.h"

namespace talweg::torch_face {

// A call that can never work. Python's class is a ValueError or a TypeError, and a RuntimeError too, which is
// what gloo raises.
class CallError : public torch::PyTorchError {
 public:
  enum class Kind { value, type };
  CallError(Kind kind, std::string text) : PyTorchError(std::move(text)), kind_(kind) {}
  PyObject* python_type() override;

 private:
  Kind kind_;
};

template <class Condition, class... Words>
void check_value(const Condition& holds, const Words&... words) {
  if (!holds) throw CallError(CallError::Kind::value, c10::str(words...));
}
template <class Condition, class... Words>
void check_type(const Condition& holds, const Words&... words) {
  if (!holds) throw CallError(CallError::Kind::type, c10::str(words...));
}

// For collectives that only move data every element type will do: one without a counterpart (float8,
// quantised) travels as the unsigned integer of its width. Throws CallError for widths other than 1,
// 2, 4, 8, 16.
DataType moved_type(const char* operation, at::ScalarType type);

// For collectives that compute. Throws CallError, naming both, when `op` has no meaning for `type`.
DataType reduced_type(const char* operation, at::ScalarType type, const c10d::ReduceOp& op);

// PREMUL_SUM is a sum: the factor is applied to the input by `Flat`. Throws CallError for UNUSED.
ReduceOp reduction(const char* operation, const c10d::ReduceOp& op);

// The same text in the exception class that a PyTorch user expects: DistBackendError (a RuntimeError) for
// what went wrong between ranks, CallError for calls that can never work.
std::exception_ptr as_torch_error(std::exception_ptr error);

// Runs `body` and lets its talweg::Error out as torch's.
template <class Body>
auto with_torch_errors(Body&& body) {
  try {
    return body();
  } catch (const Error&) {
    std::rethrow_exception(as_torch_error(std::current_exception()));
  }
}

}  // namespace talweg::torch_face
