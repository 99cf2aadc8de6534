// What talweg.torch.hooks computes, on torch's tensors: gradients encoded for the wire, and read again.
// Tensors of gradients and residuals are float32, one-dimensional, contiguous and on the CPU; else CallError.
//
// Thread rule: const methods from any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steer/gradient_rows.h"
#include "steer/gradient_shards.h"
#include "steer/sending_chooser.h"

namespace talweg::torch_face {

// See steer/gradient_shards.h. Encoded shards are tensors of bytes. A seed means stochastic rounding.
class Shards {
 public:
  using Seed = std::optional<std::uint64_t>;

  // Throws CallError for a code that is none of "f32", "f16", "bf16", "int8", "int4".
  Shards(const std::vector<std::size_t>& counts, const std::vector<std::uint64_t>& numbers, int ranks,
         const std::string& code, std::uint32_t block);

  std::vector<std::size_t> bytes() const;                 // of each rank's shard
  std::vector<std::size_t> shard_counts(int rank) const;  // a rank's elements of each parameter

  at::Tensor encode(int rank, const at::Tensor& gradients, const std::optional<at::Tensor>& residual,
                    Seed seed, std::uint64_t step) const;
  at::Tensor sum(int rank, const at::Tensor& received, const std::optional<at::Tensor>& residual, Seed seed,
                 std::uint64_t step) const;
  void decode(const at::Tensor& gathered, at::Tensor out) const;

 private:
  std::size_t parameters_;
  int ranks_;
  steer::GradientShards shards_;
};

// See steer/gradient_rows.h. Chosen rows and payloads are tensors of int32.
class Rows {
 public:
  Rows(const std::vector<std::size_t>& counts, std::size_t width);

  at::Tensor top(const at::Tensor& gradients, double ratio) const;
  at::Tensor at_least(const at::Tensor& gradients, double least) const;
  at::Tensor random(double ratio, std::uint64_t seed, const std::vector<std::uint64_t>& numbers) const;
  std::size_t packed_words(const at::Tensor& chosen) const;
  at::Tensor pack(const at::Tensor& gradients, const at::Tensor& chosen,
                  const std::optional<at::Tensor>& residual) const;
  void add(const at::Tensor& payload, at::Tensor sums) const;

 private:
  std::size_t parameters_;
  steer::GradientRows rows_;
};

}  // namespace talweg::torch_face
