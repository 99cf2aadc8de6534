#include "protocol/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>

namespace talweg::protocol {

namespace {
constexpr std::size_t kAlignment = 64;

int size_class(std::size_t bytes) {
  return static_cast<int>(std::bit_width(std::max(bytes, kAlignment) - 1));
}
}  // namespace

void BufferPool::Free::operator()(std::byte* p) const {
  ::operator delete (p, std::align_val_t{kAlignment});
}

std::byte* BufferPool::acquire(std::size_t bytes) {
  const int c = size_class(bytes);
  const std::size_t rounded = std::size_t{1} << c;
  in_use_ += rounded;
  peak_ = std::max(peak_, in_use_);
  auto& list = free_.at(static_cast<std::size_t>(c));
  if (!list.empty()) {
    std::byte* buffer = list.back();
    list.pop_back();
    return buffer;
  }
  auto* buffer = static_cast<std::byte*>(::operator new (rounded, std::align_val_t{kAlignment}));
  owned_.emplace_back(buffer);
  list.reserve(owned_.size());  // so that release never allocates
  return buffer;
}

void BufferPool::release(std::byte* buffer, std::size_t bytes) {
  const int c = size_class(bytes);
  in_use_ -= std::size_t{1} << c;
  free_[static_cast<std::size_t>(c)].push_back(buffer);
}

}  // namespace talweg::protocol
