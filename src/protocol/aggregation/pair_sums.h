// The sums of a switch by key, in the memory of one cell: values, and how far their keys are from the round's
// first one, ascending.
//
//   PairSums sums(memory, most);                  // most * 6 bytes
//   count = sums.add(count, data, end);           // as they travel; `end`: only keys before it are wanted
//   sums.write(count, data);                      // as they travel
//
// What has no room is left out, and `end` lowered to the first key of these: what is left is whole, and who
// has been left out sends it again when the next round begins there. There is always room for one: a round
// takes the sums on. Which keys are left in the end is the same in any order of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace talweg::protocol {

class PairSums {
 public:
  PairSums(std::byte* memory, std::size_t most)
      : values_(reinterpret_cast<float*>(memory)),
        distances_(reinterpret_cast<std::uint16_t*>(memory + most * sizeof(float))),
        most_(most) {}

  // Both return how many there are now, all of them before `end`, which is a distance, 1 or more.
  std::uint16_t add(std::size_t count, std::span<const std::byte> data, std::uint64_t& end);
  std::uint16_t add(std::size_t count, const PairSums& kept, std::uint64_t& end);
  // One worker's, at least one and no more than there is room for, for add(). Says with them how many.
  void keep(std::span<const std::byte> data);
  void write(std::size_t count, std::byte* data) const;

 private:
  template <class Pairs>
  std::uint16_t merge(std::size_t count, const Pairs& pairs, std::size_t more, std::uint64_t& end);
  std::size_t kept() const;
  std::uint16_t before(std::size_t count, std::uint64_t end) const;

  float* values_;
  std::uint16_t* distances_;
  std::size_t most_;
};

}  // namespace talweg::protocol
