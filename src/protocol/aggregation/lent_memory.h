// Memory of one job: all zero when it is lent, all zero when it goes back, so that no tenant can read what
// another one has left.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory_resource>

namespace talweg::protocol {

class LentMemory {
 public:
  LentMemory(std::pmr::memory_resource& from, std::size_t bytes)
      : from_(from), bytes_(bytes), data_(static_cast<std::byte*>(from.allocate(bytes, kAlignment))) {
    std::memset(data_, 0, bytes_);
  }
  ~LentMemory() {
    std::memset(data_, 0, bytes_);
    // Memory that is given away next need not be written, as far as a compiler can tell.
    asm volatile("" : : "r"(data_) : "memory");
    from_.deallocate(data_, bytes_, kAlignment);
  }
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::pmr::memory_resource& from_;
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace talweg::protocol
