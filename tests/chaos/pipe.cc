#include "chaos/pipe.h"

#include <cstring>

#include "base/crc32c.h"
#include "chaos/node.h"
#include "chaos/world.h"

namespace talweg::chaos {

Pipe::Pipe(World& world, Node& sender, Node& receiver, int stream_number)
    : from(sender), to(receiver), stream(stream_number), opened(world.now()), world_(world) {
  flow = world.simulation().transport().open({sender.rank(), receiver.rank(), 0, sim::kNoRoute});
  world.simulation().transport().notify_at(flow, 1);
}

void Pipe::push(live::OutFrame frame) {
  if (frame.header.length > 0) {
    frame.header.flags |= wire::kHasChecksum;
    frame.header.payload_checksum = crc32c(frame.bytes(), frame.header.length);
  }
  wire::seal(frame.header);
  if (!queue_.empty() && queue_.front().priority < frame.priority) world_.marks().hit(Mark::overtaking);
  queue_.push(std::move(frame));
}

bool Pipe::flush() {
  const std::int64_t room = world_.scenario().send_buffer;
  sim::Reliable& transport = world_.simulation().transport();
  for (std::uint64_t frames = 1 + world_.random().below(6); frames > 0 && !idle(); --frames) {
    if (transport.unsent_bytes(flow) >= room) {
      transport.notify_below(flow, room);
      return false;
    }
    while (!queue_.empty() && committed_.size() < 3) committed_.push_back(queue_.pop());
    if (world_.mutation() == Mutation::swap_frames && committed_.size() > 1 && world_.random().below(10) == 0)
      std::swap(committed_[0], committed_[1]);
    live::OutFrame frame = std::move(committed_.front());
    committed_.pop_front();
    take(std::move(frame));
  }
  return !idle();
}

void Pipe::flush_all() {
  for (; !committed_.empty(); committed_.pop_front()) take(std::move(committed_.front()));
  while (!queue_.empty()) take(queue_.pop());
}

void Pipe::take(live::OutFrame frame) {
  const std::size_t begin = bytes_.size();
  bytes_.resize(begin + sizeof frame.header + frame.header.length);
  std::memcpy(bytes_.data() + begin, &frame.header, sizeof frame.header);
  if (frame.header.length > 0)
    std::memcpy(bytes_.data() + begin + sizeof frame.header, frame.bytes(), frame.header.length);
  if (world_.damages(*this)) damage(begin);
  world_.mutate(*this, bytes_, begin);
  const auto n = static_cast<std::int64_t>(bytes_.size() - begin);
  written_ += n;
  world_.simulation().transport().write(flow, n, world_.now());
  if (!frame.reported) from.on_sent(frame.header.group, frame.token);
}

// One to three bits of the frame that begins there.
void Pipe::damage(std::size_t begin) {
  Random& random = world_.random();
  const std::size_t n = bytes_.size() - begin;
  bool in_header = n == sizeof(wire::Header);
  for (std::uint64_t flips = 1 + random.below(3); flips > 0; --flips) {
    const bool header = in_header || random.below(2) == 0;
    const std::size_t bit = header ? random.below(8 * sizeof(wire::Header))
                                   : 8 * sizeof(wire::Header) + random.below(8 * (n - sizeof(wire::Header)));
    bytes_[begin + bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

void Pipe::cancel(std::uint32_t group, std::uint64_t run) {
  const auto dropped = [&](const live::OutFrame& frame) {
    world_.marks().hit(Mark::unsent);
    from.on_sent(frame.header.group, frame.token);
  };
  queue_.cancel(group, run, dropped);
  for (live::OutFrame& frame : committed_) {
    if (frame.reported || frame.header.group != group || frame.token.run != run) continue;
    if (frame.payload != nullptr)
      frame.text.assign(reinterpret_cast<const char*>(frame.payload), frame.header.length);
    frame.reported = true;
    world_.marks().hit(Mark::rescued);
    from.on_sent(frame.header.group, frame.token);
  }
}

void Pipe::drop_unsent() {
  while (!queue_.empty()) queue_.pop();
  committed_.clear();
}

void Pipe::forget() {
  while (!idle()) {
    live::OutFrame frame;
    if (committed_.empty()) {
      frame = queue_.pop();
    } else {
      frame = std::move(committed_.front());
      committed_.pop_front();
    }
    if (!frame.reported) from.on_sent(frame.header.group, frame.token);
  }
}

void Pipe::on_delivered(std::int64_t bytes) {
  arrived_ = bytes;
  if (stale)
    world_.marks().hit(Mark::stale_connection);
  else
    to.wake();
  world_.simulation().transport().notify_at(flow, bytes + 1);
}

bool Pipe::receive() {
  const auto here = static_cast<std::size_t>(arrived_ - consumed_);
  if (!header_) {
    if (here < sizeof(wire::Header)) return false;
    wire::Header header;
    const char* why = wire::decode(
        std::span<const std::byte, sizeof(wire::Header)>(bytes_.data() + begin_, sizeof(wire::Header)),
        header);
    if (why != nullptr) {
      world_.marks().hit(Mark::damaged_header);
      to.lose(from.rank(), ErrorCode::corrupted, std::string("a frame from it cannot be read: ") + why);
      return true;
    }
    begin_ += sizeof header;
    consumed_ += sizeof header;
    header_ = header;
    asked_place_ = discard_ = false;
    place_ = {};
    return true;
  }
  const wire::Header header = *header_;
  const bool whole = here >= header.length;
  if (!asked_place_ && (!whole || world_.random().below(2) == 0)) {
    asked_place_ = true;
    place_ = to.place(from.rank(), header);
    place_group_ = header.group;
    if (stale) return true;
  }
  std::byte* payload = bytes_.data() + begin_;
  if (place_.data != nullptr && !discard_)
    std::memcpy(place_.data, payload, std::min<std::size_t>(here, header.length));
  if (!whole) return false;
  begin_ += header.length;
  consumed_ += header.length;
  header_.reset();
  if (place_.data != nullptr && !discard_) payload = place_.data;
  if (place_.data != nullptr) world_.marks().hit(discard_ ? Mark::discarded : Mark::placed);
  const bool unwanted = discard_;
  place_ = {};
  if (!unwanted) {
    if (!checked(header, payload)) return true;
    if (header.type == wire::FrameType::goodbye)
      said_goodbye = true;
    else
      to.on_frame(from.rank(), header, payload);
  }
  if (!stale) compact();
  return true;
}

bool Pipe::checked(const wire::Header& header, const std::byte* payload) {
  if (header.length == 0 || header.payload_checksum == crc32c(payload, header.length) ||
      world_.mutation() == Mutation::no_checksums)
    return true;
  world_.marks().hit(Mark::damaged_payload);
  to.lose(from.rank(), ErrorCode::corrupted, "a payload from it does not match its checksum");
  return false;
}

void Pipe::compact() {
  if (begin_ < 1U << 16) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

void Pipe::forget_place(std::uint32_t group, std::uint64_t run) {
  if (header_ && place_.data != nullptr && place_group_ == group && place_.run == run) discard_ = true;
}

}  // namespace talweg::chaos
