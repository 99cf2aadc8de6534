#include "wire/frame_writer.h"

#include <cstring>

namespace talweg::wire {

SealedFrames::SealedFrames(Cipher cipher, std::size_t most)
    : cipher_(cipher), bytes_(most + sizeof(Header) + kMaxPayload + 2 * kTagBytes) {}

void SealedFrames::append(const Header& header, const std::byte* payload) {
  const std::size_t n = header.length;
  const std::size_t needed = sizeof(Header) + kTagBytes + (n > 0 ? n + kTagBytes : 0);
  if (end_ + needed > bytes_.size()) {  // in front of what is here there is room
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::byte* at = bytes_.data() + end_;
  const auto* head = reinterpret_cast<const std::byte*>(&header);
  cipher_.seal(head, sizeof(Header), at, at + sizeof(Header));
  at += sizeof(Header) + kTagBytes;
  if (n > 0) cipher_.seal(payload, n, at, at + n);
  end_ += needed;
}

void SealedFrames::remove(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
}

}  // namespace talweg::wire
