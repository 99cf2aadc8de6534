// Element-wise reduction of two operands, for every element type and reduction, vectorised with run-time
// dispatch (Google Highway). No policy: no threads, no allocation, no exceptions.
#pragma once

#include <cstddef>

#include "talweg/types.h"

namespace talweg::kernel {

// out[i] = a[i] op b[i] for i < count. `out` may be exactly `a` or exactly `b`, else they do not overlap.
// Pointers need no alignment. f16 and bf16 are computed in float32 and rounded to nearest even once per call
// (infinities and NaN survive). Integer sums and products wrap. min/max of floats: a NaN on either side gives
// NaN, and of +0 and -0 they take b's. Which NaN comes out of arithmetic on NaN is not specified; everything
// else is the same, bit for bit, on every machine.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);

// Null when the reduction has no meaning for the type (bit_* of floating or complex, min/max of complex).
// avg gives the same function as sum: the division comes at the end, see `divide`.
ReduceFunction reduce_function(DataType type, ReduceOp op);

// data[i] /= divisor: for avg, in place, at any address. divisor >= 1. Integers truncate toward zero; boolean
// is left alone; f16 and bf16 divide in float32.
void divide(DataType type, void* data, std::size_t count, int divisor);

// The plain loop, one element at a time, same results: the reference for tests.
void reduce_scalar(DataType type, ReduceOp op, void* out, const void* a, const void* b, std::size_t count);

// "AVX3", "AVX2", "SSE4", ...: what the dispatcher has chosen on this machine.
const char* target_name();

}  // namespace talweg::kernel
