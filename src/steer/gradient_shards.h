// GradientShards: a bucket of gradients, averaged over the ranks in a form that cannot be added up as it is
// sent. Each rank averages one shard, after an all-to-all, and sends the average around, by an all-gather:
// what a reduce-scatter and an all-gather do, with decoding between them.
//
//   const GradientShards shards(parameters, ranks, {kernel::Code::int8, 256});
//   shards.encode(gradients, residual, rounding, sent);             // all shards, one behind another
//   ... all-to-all: shards.bytes(r) to rank r; `received` has shards.bytes(rank) from each
//   shards.sum(rank, received, shard_residual, rounding, averaged); // shards.bytes(rank)
//   ... all-gather: `gathered` has shards.bytes(r) of each rank r
//   shards.decode(gathered, gradients);
//
// Every parameter is cut into blocks by itself, and which rank averages a block follows from the parameter's
// number and size alone. So how a bucket is put together changes nothing, neither results nor what is in
// which residual: DDP may rebuild its buckets, and a job that goes on from a checkpoint comes to the same
// bits. Sums are computed in float32 in rank order, whatever plan carries the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel/gradient_code.h"

namespace talweg::steer {

struct GradientParameter {
  std::size_t count = 0;     // elements
  std::uint64_t number = 0;  // the same on all ranks and in all buckets
};

// Where random numbers come from; one seed for all ranks, whose numbers still differ from each other's.
struct GradientRounding {
  bool stochastic = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

class GradientShards {
 public:
  // Throws Error{invalid_argument} for a format whose block is none.
  GradientShards(std::span<const GradientParameter> parameters, int ranks, kernel::GradientFormat format);

  std::size_t count() const { return count_; }                              // elements of the bucket
  std::size_t bytes(int rank) const { return bytes_[index(rank)]; }         // of its shard, encoded
  std::size_t total_bytes() const;                                          // of all shards
  std::size_t shard_count(int rank) const { return counts_[index(rank)]; }  // elements of its shard
  // How many elements of a parameter of the bucket are in a rank's shard: its part of a shard's residual.
  std::size_t shard_count(int rank, std::size_t parameter) const;

  // As kernel::encode, or where there is a residual encode_with_feedback. `rank` is the caller's.
  void encode(int rank, const float* gradients, float* residual, const GradientRounding& rounding,
              std::byte* out) const;
  // The sum of what all ranks sent for this rank's shard, encoded again, with a residual of its own.
  void sum(int rank, const std::byte* received, float* residual, const GradientRounding& rounding,
           std::byte* out) const;
  void decode(const std::byte* gathered, float* out) const;

 private:
  struct Piece {
    std::size_t parameter;
    std::uint64_t number;
    std::size_t begin;   // in the bucket
    std::size_t offset;  // in the parameter
    std::size_t count;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  kernel::Rounding rounding_of(const Piece& piece, const GradientRounding& rounding, int rank,
                               int stage) const;

  kernel::GradientFormat format_;
  std::size_t count_ = 0;
  std::vector<std::vector<Piece>> pieces_;  // by rank, in the order of the bucket
  std::vector<std::size_t> bytes_, counts_;
};

}  // namespace talweg::steer
