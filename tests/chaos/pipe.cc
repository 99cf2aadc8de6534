#include "chaos/pipe.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "chaos/node.h"
#include "chaos/world.h"

namespace talweg::chaos {

namespace {
constexpr std::size_t kMostPayload = 64U << 10;  // of the chunks of these scenarios
constexpr std::size_t kCommitted = 3;
}  // namespace

Pipe::Pipe(World& world, Node& sender, Node& receiver, int stream_number)
    : from(sender),
      to(receiver),
      stream(stream_number),
      opened(world.now()),
      world_(world),
      writer_(world.mutation() != Mutation::no_checksums),
      reader_(std::nullopt, kMostPayload) {
  flow = world.simulation().transport().open({sender.rank(), receiver.rank(), 0, sim::kNoRoute});
  world.simulation().transport().notify_at(flow, 1);
}

void Pipe::push(live::OutFrame frame) {
  writer_.seal(frame);
  if (!queue_.empty() && queue_.front().priority < frame.priority) world_.marks().hit(Mark::overtaking);
  queue_.push(std::move(frame));
}

bool Pipe::flush() {
  const std::int64_t room = world_.scenario().send_buffer;
  sim::Transport& transport = world_.simulation().transport();
  for (std::uint64_t parts = 1 + world_.random().below(6); parts > 0 && !idle(); --parts) {
    if (transport.unsent_bytes(flow) >= room) {
      transport.notify_below(flow, room);
      return false;
    }
    commit(kCommitted);
    write(world_.random().below(4) != 0);
  }
  return !idle();
}

void Pipe::flush_all() {
  while (!idle()) {
    commit(kCommitted);
    write(true);
  }
}

// The wire holds at most `frames` that nothing overtakes any more.
void Pipe::commit(std::size_t frames) {
  while (!queue_.empty() && writer_.frames() < frames) {
    live::OutFrame frame = queue_.pop();
    if (world_.mutation() == Mutation::swap_frames && !queue_.empty() && world_.random().below(10) == 0)
      writer_.commit(queue_.pop());
    writer_.commit(std::move(frame));
  }
}

// Gives the transport the rest of a frame, or some of the bytes that are next, whatever they belong to.
void Pipe::write(bool whole_frame) {
  const bool exposed = writer_.at_frame_start() && whole_frame;  // to damage, which strikes a frame
  std::array<iovec, wire::FrameWriter<live::OutFrame>::kParts> parts;
  std::size_t total = 0;
  const std::size_t n = writer_.gather(parts, total);
  const std::size_t taken = whole_frame ? writer_.first_bytes() : 1 + world_.random().below(total);
  const std::size_t begin = bytes_.size();
  std::size_t left = taken;
  for (std::size_t i = 0; i < n && left > 0; ++i) {
    const std::size_t here = std::min(left, parts[i].iov_len);
    const auto* data = static_cast<const std::byte*>(parts[i].iov_base);
    bytes_.insert(bytes_.end(), data, data + here);
    left -= here;
  }
  if (exposed) {
    if (world_.damages(*this)) damage(begin);
    world_.mutate(*this, bytes_, begin);
  }
  const auto arrives = static_cast<std::int64_t>(bytes_.size() - begin);
  written_ += arrives;
  world_.simulation().transport().write(flow, arrives, world_.now());
  writer_.release(taken, [this](const live::OutFrame& frame) {
    if (!frame.reported) from.on_sent(frame.header.group, frame.token);
  });
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
  const auto dropped = [&](Mark mark) {
    return [this, mark](const live::OutFrame& frame) {
      world_.marks().hit(mark);
      from.on_sent(frame.header.group, frame.token);
    };
  };
  queue_.cancel(group, run, dropped(Mark::unsent));
  writer_.cancel(group, run, dropped(Mark::rescued));
}

void Pipe::drop_unsent() {
  while (!queue_.empty()) queue_.pop();
  writer_.forget([](const live::OutFrame&) {});
}

void Pipe::forget() {
  const auto dropped = [this](const live::OutFrame& frame) {
    if (!frame.reported) from.on_sent(frame.header.group, frame.token);
  };
  writer_.forget(dropped);
  while (!queue_.empty()) dropped(queue_.pop());
}

void Pipe::on_delivered(std::int64_t bytes) {
  arrived_ = bytes;
  if (stale)
    world_.marks().hit(Mark::stale_connection);
  else
    to.wake();
  world_.simulation().transport().notify_at(flow, bytes + 1);
}

// One thing that happens to the reader: a frame, a question for a place, or more bytes.
bool Pipe::receive() {
  const bool any = hand_over() || read_some();
  if (!stale) compact();
  return any;
}

bool Pipe::hand_over() {
  using Step = wire::FrameReader::Step;
  const Step step = reader_.next();
  handed_over_ = step == Step::more;
  if (handed_over_) return false;
  const wire::Header& header = reader_.header();
  if (step == Step::damaged) {
    const bool in_header = reader_.why().find("cannot be read") != std::string::npos;
    world_.marks().hit(in_header ? Mark::damaged_header : Mark::damaged_payload);
    to.lose(from.rank(), ErrorCode::corrupted, reader_.why());
    return true;
  }
  if (step == Step::place) {
    const protocol::Session::Placement place = to.place(from.rank(), header);
    if (stale) return true;
    reader_.put({place.data, header.group, place.run});
    placed_ = place.data;
    return true;
  }
  if (placed_ != nullptr && reader_.payload() == placed_) world_.marks().hit(Mark::placed);
  if (header.type == wire::FrameType::goodbye)
    said_goodbye = true;
  else
    to.on_frame(from.rank(), header, reader_.payload());
  return true;
}

// Some of what has arrived.
bool Pipe::read_some() {
  auto here = static_cast<std::size_t>(arrived_ - consumed_);
  if (here == 0) return false;
  if (world_.random().below(2) == 0) here = 1 + world_.random().below(here);
  std::array<iovec, wire::FrameReader::kParts> parts;
  std::size_t n = 0;
  reader_.space(parts, n);
  std::size_t got = 0;
  for (std::size_t i = 0; i < n && here > got; ++i) {
    const std::size_t bytes = std::min(here - got, parts[i].iov_len);
    std::memcpy(parts[i].iov_base, bytes_.data() + begin_ + got, bytes);
    got += bytes;
  }
  begin_ += got;
  consumed_ += static_cast<std::int64_t>(got);
  reader_.wrote(got);
  handed_over_ = false;
  return true;
}

void Pipe::compact() {
  if (begin_ < 1U << 16) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

void Pipe::forget_place(std::uint32_t group, std::uint64_t run) {
  if (reader_.forget_place(group, run)) world_.marks().hit(Mark::discarded);
}

}  // namespace talweg::chaos
