// FrameRecord: the chunks that the nodes of a group sent each other in its last call, and which of them its
// end waited for.
//
//   FrameRecord record;
//   ranks.on_frame([&](const FrameNote& note) { record.add(note); });
//   simulation.run();
//   record.critical_path(node);
#pragma once

#include <cstdint>
#include <vector>

#include "sim/ranks.h"

namespace talweg::sim {

class FrameRecord {
 public:
  static constexpr std::size_t kMostFrames = 1'000'000;  // some 40 MB

  struct Frame {
    std::int32_t from = 0;  // nodes
    std::int32_t to = 0;
    std::uint32_t tree = 0;
    std::uint32_t chunk = 0;
    Picoseconds sent = 0;
    Picoseconds received = 0;
    bool up = false;
  };

  explicit FrameRecord(std::size_t limit = kMostFrames) : limit_(limit) {}

  // Other frames than chunks are passed over. The first chunk of a later call forgets those of the call
  // before it.
  void add(const FrameNote& note);
  // In the order of arrival; not all of them if there were more than the limit.
  const std::vector<Frame>& frames() const { return frames_; }
  bool complete() const { return complete_; }
  // The frames that led to the last one that `node` received, in order of time: before each of them that
  // which brought its sender the same chunk of the same tree, the last of several. From the arrival of the
  // one to the sending of the next, the chunk waited at the node between. Empty where the record is not
  // complete.
  std::vector<Frame> critical_path(int node) const;

 private:
  std::size_t limit_;
  std::vector<Frame> frames_;
  std::uint64_t call_ = 0;
  bool complete_ = true;
};

}  // namespace talweg::sim
