// HugePages: memory for what is large and touched at random, on pages of 2 MiB where the system has them, so
// that finding a page costs little. Small pieces come from where all memory comes from.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace talweg::sim {

template <typename T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t kPage = std::size_t{2} << 20;

  HugePages() = default;
  template <typename U>
  explicit HugePages(const HugePages<U>&) {}

  static std::align_val_t alignment(std::size_t bytes) {
    return std::align_val_t{bytes >= kPage ? kPage : alignof(T) > 64 ? alignof(T) : 64};
  }
  T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    void* memory = ::operator new(bytes, alignment(bytes));
    if (bytes >= kPage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice: it may be refused
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t n) { ::operator delete(memory, alignment(n * sizeof(T))); }
  bool operator==(const HugePages&) const = default;
};

}  // namespace talweg::sim
