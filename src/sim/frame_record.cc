#include "sim/frame_record.h"

#include <algorithm>
#include <tuple>

#include "wire/frames.h"

namespace talweg::sim {

void FrameRecord::add(const FrameNote& note) {
  const wire::FrameType type = note.header.type;
  if (type != wire::FrameType::up && type != wire::FrameType::down) return;
  const std::uint64_t call = wire::call_of(note.header).sequence;
  if (call < call_) return;
  if (call > call_) {
    call_ = call;
    frames_.clear();
    complete_ = true;
  }
  if (frames_.size() == limit_) {
    complete_ = false;
    return;
  }
  const wire::Chunk chunk = wire::chunk_of(note.header);
  frames_.push_back({note.from, note.to, chunk.tree, chunk.chunk, note.sent, note.received, chunk.up});
}

std::vector<FrameRecord::Frame> FrameRecord::critical_path(int node) const {
  std::vector<Frame> path;
  if (!complete_) return path;
  const auto key = [](const Frame& f) { return std::tuple(f.to, f.tree, f.chunk, f.received); };
  std::vector<Frame> by_chunk = frames_;
  std::ranges::sort(by_chunk, {}, key);
  const Frame* last = nullptr;
  for (const Frame& f : by_chunk)
    if (f.to == node && (last == nullptr || f.received > last->received)) last = &f;
  while (last != nullptr) {
    path.push_back(*last);
    // Strictly earlier, as a frame takes time to travel: this ends.
    const auto after = std::ranges::upper_bound(
        by_chunk, std::tuple(last->from, last->tree, last->chunk, last->sent), {}, key);
    const Frame* before = after == by_chunk.begin() ? nullptr : &*(after - 1);
    const bool same = before != nullptr && before->to == last->from && before->tree == last->tree &&
                      before->chunk == last->chunk;
    last = same ? before : nullptr;
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace talweg::sim
