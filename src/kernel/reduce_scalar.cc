#include "kernel/reduce.h"
#include "kernel/scalar.h"

namespace talweg::kernel {

void reduce_scalar(DataType type, ReduceOp op, void* out, const void* a, const void* b, std::size_t count) {
  visit_type(type, [&]<typename T>(T) {
    visit_op(effective_op(type, op), [&]<ReduceOp effective>() {
      if constexpr (has_meaning<T>(effective)) reduce_elements<effective, T>(out, a, b, count);
    });
  });
}

}  // namespace talweg::kernel
