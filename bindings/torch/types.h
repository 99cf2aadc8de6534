// Torch's element types, reductions and errors in Talweg's words, and back.
#pragma once

#include <ATen/ATen.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "talweg/error.h"
#include "talweg/types.h"

namespace talweg::torch_face {

// For collectives that only move data every element type will do: one without a counterpart (float8,
// quantised) travels as the unsigned integer of its width. Throws torch's TypeError for widths other than 1,
// 2, 4, 8, 16.
DataType moved_type(const char* operation, at::ScalarType type);

// For collectives that compute. Throws torch's TypeError, naming both, when `op` has no meaning for `type`.
DataType reduced_type(const char* operation, at::ScalarType type, const c10d::ReduceOp& op);

// PREMUL_SUM is a sum: the factor is applied to the input by `Flat`. Throws torch's ValueError for UNUSED.
ReduceOp reduction(const char* operation, const c10d::ReduceOp& op);

// The same text in the exception class that a PyTorch user expects: DistBackendError (a RuntimeError) for
// what went wrong between ranks, ValueError and TypeError for calls that can never work.
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
