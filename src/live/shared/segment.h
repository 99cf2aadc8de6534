// The memory that one rank shares with the ranks of its host: a ring of frames from each of them, and a pool
// of payload blocks that it fills and they read.
//
// A frame is written once into the pool, however many ranks it goes to; each gets an entry in its ring that
// names the block, and drops its count when it has used it. Entries are published by a stamp written last, so
// that a reader that polls touches one cache line, and an entry with a small payload needs no block at all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "live/system.h"
#include "wire/frame.h"

namespace talweg::live {

inline constexpr std::uint32_t kNoBlock = ~0U;
inline constexpr std::size_t kInline = 48;      // payload bytes that travel in the entry itself
inline constexpr std::uint32_t kEntries = 256;  // per ring

struct alignas(128) Entry {
  wire::Header header;
  std::atomic<std::uint64_t> stamp;  // 1 + the entry's position in the endless ring, once it is complete
  std::uint32_t block;
  std::uint32_t unused;
  std::byte payload[kInline];
};
static_assert(sizeof(Entry) == 128);

struct alignas(128) RingTail {
  std::atomic<std::uint64_t> taken;  // entries that the reader has finished with, told now and then
  // Entries whose blocks the reader has given back, or is about to: exact whenever it dies, so that the
  // writer can give back the others.
  std::atomic<std::uint64_t> used;
};

struct alignas(128) Doorbell {
  std::atomic<std::uint32_t> sleeping;  // the owner is about to sleep, or does: write to its stream
};

// Blocks of two sizes, so that small messages of many in flight do not use up the large ones.
struct BlockClass {
  std::size_t bytes;
  std::uint32_t blocks;
};
inline constexpr BlockClass kSmall{16U << 10, 64};
inline constexpr BlockClass kLarge{256U << 10, 16};
inline constexpr std::uint32_t kBlocks = kSmall.blocks + kLarge.blocks;
inline bool needs_large(std::size_t bytes) {
  return bytes > kSmall.bytes;
}

class Segment {
 public:
  // Bytes of a segment for `ranks` ranks on the host.
  static std::size_t bytes_for(int ranks);
  // An anonymous file of that size: nothing of it stays behind when the last process is gone.
  static FileDescriptor create(int ranks);

  // `local` numbers the ranks of the host 0 .. ranks-1.
  Segment(const FileDescriptor& file, int ranks);

  Doorbell& doorbell() const;
  Entry* ring(int from_local) const;  // kEntries of them
  RingTail& tail(int from_local) const;
  std::atomic<std::uint32_t>& readers(std::uint32_t block) const;  // ranks that still read it
  std::byte* block(std::uint32_t index) const;
  static std::size_t block_bytes(std::uint32_t index) {
    return index < kSmall.blocks ? kSmall.bytes : kLarge.bytes;
  }

 private:
  int ranks_;
  Mapping mapping_;
};

// Hands out the blocks of this rank's own segment: the one freed last first, since it is still in the cache.
class BlockPool {
 public:
  explicit BlockPool(const Segment& segment);
  // Whether a reader that has not given back `held` blocks of this size yet may have one more: nobody gets
  // more than three times what is free, so that who has stopped reading leaves a quarter to the others
  // (dynamic thresholds: Choudhury and Hahne, 1998).
  bool may_lend(std::size_t bytes, std::size_t held);
  // A block of at least `bytes` bytes with no readers; kNoBlock while all are being read.
  std::uint32_t take(std::size_t bytes);
  // Gives back a block whose readers have been set; it is reused when they have gone.
  void lend(std::uint32_t block);

 private:
  void reclaim(bool large);
  const Segment& segment_;
  std::vector<std::uint32_t> free_[2];
  std::vector<std::uint32_t> lent_[2];
};

}  // namespace talweg::live
