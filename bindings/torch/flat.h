// One or several tensors as one contiguous run of elements, which is what talweg::Group speaks of.
//
// Tensors that already lie so in memory (one contiguous tensor; the chunks of one, in order) are used where
// they are. Others (transposed, conjugated, scattered lists) get a staging copy: `load` fills it before the
// collective, `store` writes the tensors from it afterwards.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <memory>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace talweg::torch_face {

class Flat {
 public:
  // All tensors are dense, on the CPU and of one type, else CallError naming `operation`. `own_copy` asks for
  // staging even where none is needed.
  Flat(const char* operation, std::vector<at::Tensor> tensors, bool own_copy = false);

  void* data() const { return data_; }
  std::size_t count() const { return count_; }  // elements in all
  at::ScalarType type() const { return type_; }
  bool is_staged() const { return staging_.defined(); }

  // For PREMUL_SUM, which multiplies the input: `load` will do it. Needs its own copy.
  void scale_on_load(const c10d::ReduceOp& premul_sum);

  // What is stored are sums: several for one element of memory, as an expanded tensor has them, are of the
  // same numbers, though their last bits may differ. Else they must be equal.
  void set_summed() { summed_ = true; }

  void load();
  // Throws CallError where different numbers are for one element of memory.
  void store();

 private:
  void store_one(at::Tensor to, at::Tensor from) const;

  std::vector<at::Tensor> tensors_;
  at::Tensor staging_;
  at::Tensor factor_;  // undefined: one
  bool summed_ = false;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  at::ScalarType type_;
};

using FlatPtr = std::shared_ptr<Flat>;

// Elements of each tensor.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors);

// The tensor of a list of one, which is how torch passes most tensors; else CallError.
const at::Tensor& the_only(const char* operation, const std::vector<at::Tensor>& tensors);

// Throws CallError unless `tensor` is a dense CPU tensor.
void check_dense_on_cpu(const char* operation, const at::Tensor& tensor);

}  // namespace talweg::torch_face
