// Chunk buffers in power-of-two sizes, kept for reuse and counted. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace talweg::protocol {

class BufferPool {
 public:
  // At least `bytes` bytes, aligned to 64, contents undefined.
  std::byte* acquire(std::size_t bytes);
  // `bytes` as it was given to acquire.
  void release(std::byte* buffer, std::size_t bytes);

  std::size_t bytes_in_use() const { return in_use_; }
  std::size_t peak_bytes() const { return peak_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  static constexpr int kClasses = 32;
  std::array<std::vector<std::byte*>, kClasses> free_;
  std::vector<std::unique_ptr<std::byte, Free>> owned_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace talweg::protocol
