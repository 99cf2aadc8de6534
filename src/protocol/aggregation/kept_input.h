// The input of a vector that is summed in place: what of it is about to be overwritten is copied, a piece at
// a time, so that no sum waits for all of it, and can be had back.
//
//   KeptInput kept;
//   kept.reset(data, bytes);               // false: memory does not hold it
//   kept.keep(offset, count);              // before so many bytes are written there, as often as one likes
//   kept.give_back();                      // all is as it was
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace talweg::protocol {

class KeptInput {
 public:
  // `data` are the caller's until it is reset again. Memory for a copy is taken, and touched when it is
  // needed.
  bool reset(std::byte* data, std::size_t bytes) {
    data_ = data;
    bytes_ = bytes;
    copy_.reset(new (std::nothrow) std::byte[bytes]);
    kept_.assign(copy_ == nullptr ? 0 : (bytes + kPiece - 1) / kPiece, false);
    return copy_ != nullptr;
  }
  // Nothing where nothing was reset.
  void keep(std::size_t offset, std::size_t count) {
    if (copy_ == nullptr || count == 0) return;
    for (std::size_t piece = offset / kPiece; piece <= (offset + count - 1) / kPiece; ++piece) {
      if (kept_[piece]) continue;
      kept_[piece] = true;
      const std::size_t first = piece * kPiece;
      std::memcpy(copy_.get() + first, data_ + first, std::min(kPiece, bytes_ - first));
    }
  }
  void give_back() {
    for (std::size_t piece = 0; piece < kept_.size(); ++piece) {
      if (!kept_[piece]) continue;
      const std::size_t first = piece * kPiece;
      std::memcpy(data_ + first, copy_.get() + first, std::min(kPiece, bytes_ - first));
    }
  }

 private:
  static constexpr std::size_t kPiece = 4096;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[]> copy_;
  std::vector<bool> kept_;  // by piece
};

}  // namespace talweg::protocol
