// Memory of slots, from the kernel and back to it. A heap keeps what a job had for the next one, which may
// not fit there: a process could come to have several times what its jobs have.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace talweg::live {

class SlotMemory : public std::pmr::memory_resource {
 public:
  // What a job may take more than it asks for: its last page.
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

 private:
  // Aligned to a page, which is more than slots ask for.
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return data;
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t /*alignment*/) override {
    ::munmap(data, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace talweg::live
