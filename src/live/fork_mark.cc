#include "live/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include "live/system.h"

namespace talweg::live {

namespace {
constexpr std::size_t kMarkPage = 4096;  // the least that can be wiped
}  // namespace

ForkMark::ForkMark() : process_(::getpid()) {
  void* page = ::mmap(nullptr, kMarkPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(page == MAP_FAILED ? -1 : 0, "taking a page that a fork wipes");
  mark_ = static_cast<int*>(page);
  *mark_ = 1;
  if (::madvise(page, kMarkPage, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kMarkPage);
    check(-1, "having a page wiped by fork");
  }
}

ForkMark::~ForkMark() {
  ::munmap(const_cast<int*>(mark_), kMarkPage);
}

}  // namespace talweg::live
