#include "steer/gradient_shards.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "base/random.h"

namespace talweg::steer {

GradientShards::GradientShards(std::span<const GradientParameter> parameters, int ranks,
                               kernel::GradientFormat format)
    : format_(format), pieces_(index(ranks)), bytes_(index(ranks)), counts_(index(ranks)) {
  if (!kernel::is_block(format.block))
    refuse("a block of gradients is a multiple of {} from {} to {} elements, not {}", kernel::kSmallestBlock,
           kernel::kSmallestBlock, kernel::kLargestBlock, format.block);
  const std::size_t size = index(ranks);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto [count, number] = parameters[p];
    const std::size_t blocks = (count + format.block - 1) / format.block;
    for (std::size_t rank = 0; rank < size; ++rank) {
      // Parameters of less blocks than there are ranks would else be all with the same few.
      const std::size_t place = (rank + number) % size;
      const std::size_t begin = blocks * place / size * format.block;
      const std::size_t end = std::min(blocks * (place + 1) / size * format.block, count);
      if (begin >= end) continue;
      pieces_[rank].push_back({p, number, count_ + begin, begin, end - begin});
      bytes_[rank] += kernel::encoded_bytes(format, end - begin);
      counts_[rank] += end - begin;
    }
    count_ += count;
  }
}

std::size_t GradientShards::total_bytes() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::size_t{0});
}

std::size_t GradientShards::shard_count(int rank, std::size_t parameter) const {
  for (const Piece& piece : pieces_[index(rank)])
    if (piece.parameter == parameter) return piece.count;
  return 0;
}

// Another stream for each parameter, step, rank and stage: errors that are alike would add up.
kernel::Rounding GradientShards::rounding_of(const Piece& piece, const GradientRounding& rounding, int rank,
                                             int stage) const {
  if (!rounding.stochastic) return {};
  const std::uint64_t step = Random(rounding.seed, rounding.step).next();
  const std::uint64_t place = Random(step, 2 * static_cast<std::uint64_t>(rank) + (stage == 2)).next();
  return {true, Random(place, piece.number).next(), piece.offset};
}

void GradientShards::encode(int rank, const float* gradients, float* residual,
                            const GradientRounding& rounding, std::byte* out) const {
  for (const auto& shard : pieces_) {
    for (const Piece& piece : shard) {
      const kernel::Rounding how = rounding_of(piece, rounding, rank, 1);
      const float* const from = gradients + piece.begin;
      if (residual == nullptr) {
        kernel::encode(format_, from, piece.count, out, how);
      } else {
        kernel::encode_with_feedback(format_, from, residual + piece.begin, piece.count, out, how);
      }
      out += kernel::encoded_bytes(format_, piece.count);
    }
  }
}

void GradientShards::sum(int rank, const std::byte* received, float* residual,
                         const GradientRounding& rounding, std::byte* out) const {
  std::vector<float> sums;
  std::size_t from = 0;
  for (const Piece& piece : pieces_[index(rank)]) {
    sums.resize(piece.count);
    for (std::size_t other = 0; other < pieces_.size(); ++other) {
      const std::byte* const encoded = received + other * bytes(rank) + from;
      (other == 0 ? kernel::decode : kernel::decode_add)(format_, encoded, piece.count, sums.data());
    }
    const kernel::Rounding how = rounding_of(piece, rounding, rank, 2);
    if (residual == nullptr) {
      kernel::encode(format_, sums.data(), piece.count, out, how);
    } else {
      kernel::encode_with_feedback(format_, sums.data(), residual, piece.count, out, how);
      residual += piece.count;
    }
    from += kernel::encoded_bytes(format_, piece.count);
    out += kernel::encoded_bytes(format_, piece.count);
  }
}

void GradientShards::decode(const std::byte* gathered, float* out) const {
  for (const auto& shard : pieces_) {
    for (const Piece& piece : shard) {
      kernel::decode(format_, gathered, piece.count, out + piece.begin);
      gathered += kernel::encoded_bytes(format_, piece.count);
    }
  }
}

}  // namespace talweg::steer
