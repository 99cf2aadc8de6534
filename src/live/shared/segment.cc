#include "live/shared/segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "talweg/error.h"

namespace talweg::live {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLentToFree = 3;  // at most, for each reader

std::size_t round_up(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::size_t rings_at() {
  return round_up(sizeof(Doorbell));
}
std::size_t tails_at(int ranks) {
  return rings_at() + round_up(static_cast<std::size_t>(ranks) * kEntries * sizeof(Entry));
}
std::size_t readers_at(int ranks) {
  return tails_at(ranks) + round_up(static_cast<std::size_t>(ranks) * sizeof(RingTail));
}
constexpr std::size_t kReaderStride = 64;  // each count on a cache line of its own
std::size_t blocks_at(int ranks) {
  return readers_at(ranks) + round_up(kBlocks * kReaderStride);
}

}  // namespace

std::size_t Segment::bytes_for(int ranks) {
  return blocks_at(ranks) + kSmall.bytes * kSmall.blocks + kLarge.bytes * kLarge.blocks;
}

FileDescriptor Segment::create(int ranks) {
  FileDescriptor file(check(::memfd_create("talweg", MFD_CLOEXEC), "creating shared memory"));
  check(::ftruncate(file.get(), static_cast<off_t>(bytes_for(ranks))), "sizing shared memory");
  return file;
}

// A fresh file reads as zeros, which is the right start for every atomic in it.
Segment::Segment(const FileDescriptor& file, int ranks) : ranks_(ranks), mapping_(file, bytes_for(ranks)) {}

Doorbell& Segment::doorbell() const {
  return *reinterpret_cast<Doorbell*>(mapping_.data());
}

Entry* Segment::ring(int from_local) const {
  return reinterpret_cast<Entry*>(mapping_.data() + rings_at()) +
         static_cast<std::size_t>(from_local) * kEntries;
}

RingTail& Segment::tail(int from_local) const {
  return reinterpret_cast<RingTail*>(mapping_.data() + tails_at(ranks_))[from_local];
}

std::atomic<std::uint32_t>& Segment::readers(std::uint32_t block) const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(mapping_.data() + readers_at(ranks_) +
                                                        block * kReaderStride);
}

std::byte* Segment::block(std::uint32_t index) const {
  std::byte* base = mapping_.data() + blocks_at(ranks_);
  if (index < kSmall.blocks) return base + index * kSmall.bytes;
  return base + kSmall.blocks * kSmall.bytes + (index - kSmall.blocks) * kLarge.bytes;
}

BlockPool::BlockPool(const Segment& segment) : segment_(segment) {
  for (std::uint32_t b = kBlocks; b-- > 0;) free_[b >= kSmall.blocks ? 1 : 0].push_back(b);
  for (auto& lent : lent_) lent.reserve(kBlocks);
}

bool BlockPool::may_lend(std::size_t bytes, std::size_t held) {
  const bool large = needs_large(bytes);
  if (kLentToFree * free_[large].size() <= held) reclaim(large);
  return kLentToFree * free_[large].size() > held;
}

std::uint32_t BlockPool::take(std::size_t bytes) {
  if (bytes > kLarge.bytes) return kNoBlock;
  const bool large = needs_large(bytes);
  if (free_[large].empty()) reclaim(large);
  if (free_[large].empty()) return kNoBlock;
  const std::uint32_t block = free_[large].back();
  free_[large].pop_back();
  return block;
}

void BlockPool::lend(std::uint32_t block) {
  lent_[block >= kSmall.blocks ? 1 : 0].push_back(block);
}

void BlockPool::reclaim(bool large) {
  std::erase_if(lent_[large], [&](std::uint32_t block) {
    if (segment_.readers(block).load(std::memory_order_acquire) != 0) return false;
    free_[large].push_back(block);
    return true;
  });
}

}  // namespace talweg::live
