#include "counted_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> allocated{0};
thread_local long left_here = -1;  // so many more on this thread, then there is no memory, once; below 0: all

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocated;
  if (left_here >= 0 && left_here-- == 0) throw std::bad_alloc();
  // A multiple of the alignment, as the function asks for.
  void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

long talweg::allocations() {
  return allocated;
}
void talweg::run_out_of_memory_after(long more) {
  left_here = more;
}

// Not inlined: GCC takes free() of what operator new gave for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes + 1, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes + 1, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
