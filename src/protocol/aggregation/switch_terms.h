// What a switch lends to a job, and how much memory that is. Nothing grows beyond it later: who wants more is
// refused. And how a job's vectors are cut into blocks that suit its path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace talweg::protocol {

// Where a datagram came from: an address that the driver knows the meaning of. SwitchML's workers are told
// apart by the host alone.
struct Peer {
  std::uint64_t host = 0;
  std::uint16_t port = 0;
  bool operator==(const Peer&) const = default;
};

// The switch that sums what several of these have summed. To it, this switch is one of the job's workers.
struct SwitchAbove {
  std::uint16_t worker = 0;
  // A contribution is sent up again no sooner than this after it was sent, however many workers ask.
  std::int64_t resend_ns = 1'000'000;
};

struct JobTerms {
  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  std::uint16_t self = 0;     // the switch's own number, as the sender of what it says
  std::uint16_t workers = 0;  // that send to this switch
  std::uint16_t slots = 0;
  std::uint8_t columns = 1;        // of a slot: blocks that travel in one datagram
  std::uint16_t block = 0;         // elements, at most
  bool ordered = false;            // floats are summed in the order of workers: same bits in every run
  double bytes_per_second = 0;     // of datagrams from workers, in the long run
  double burst_bytes = 256 << 10;  // and at once
  // Of results to all workers together, in the long run; 0: as they come. Where they leave once for all, by
  // multicast, one copy counts. Beyond it they wait, in the order in which rounds have ended, in the memory
  // of their rounds: a worker that waits for a result sends nothing to its slot.
  double result_bytes_per_second = 0;
  std::optional<SwitchAbove> above;
  // Rounds may end without some of their workers, as far as these say (tolerance.h), once they have lingered
  // for so long; 0: for as long as the switch has learnt.
  bool tolerant = false;
  std::int64_t linger_ns = 0;
};
inline std::size_t versions(const JobTerms& terms) {
  return terms.tolerant ? 3 : 2;
}

// SwitchML's workers speak on their own wire; each is known by its host.
struct SwitchmlTerms {
  std::uint32_t job = 0;  // this switch's name for it; not what stands in packets
  std::vector<std::uint64_t> hosts;
  std::uint16_t slots = 0;
  std::uint16_t elements = 256;  // 64 or 256
  double bytes_per_second = 0;
  double burst_bytes = 256 << 10;
};
inline constexpr std::size_t kMaxSwitchmlWorkers = 32;  // its bitmaps have no more

// The burst of a job that it cannot exceed in one piece: twice what all of its workers may have on its way,
// in datagrams of so many bytes, and no less than JobTerms has it.
inline double burst_for(const JobTerms& terms, std::size_t datagram) {
  return std::max(JobTerms{}.burst_bytes,
                  2.0 * static_cast<double>(std::size_t{terms.slots} * terms.workers * datagram));
}

struct SwitchLimits {
  std::size_t memory_bytes = std::size_t{256} << 20;  // of all jobs
  std::size_t jobs = 64;
  double bytes_per_second = 12.5e9;  // that all jobs' rates may add up to
};

// Memory, in bytes, by what it is for. `total` is what counts against the limits.
struct JobMemory {
  std::size_t cells = 0;         // slots x columns x 2 versions, or 3 where rounds may end without workers
  std::size_t round = 0;         // of a cell: what the round is
  std::size_t contributors = 0;  // who has been heard
  std::size_t sums = 0;          // elements, each 4 bytes wide
  std::size_t parts = 0;         // where sums are ordered: each worker's
  std::size_t cell = 0;          // all four, on whole cache lines
  std::size_t peers = 0;         // where each worker spoke from; of SwitchML's, to each slot
  std::size_t gaps = 0;          // what of each worker's has not come
  std::size_t sent = 0;          // of which slots the last results were
  std::size_t tolerance = 0;     // which rounds linger, and what each worker may be absent in
  std::size_t held_back = 0;     // where a switch is above: slots that it is too busy for
  std::size_t packets = 0;       // that are being made
  std::size_t total = 0;
};
JobMemory memory_of(const JobTerms& terms);
JobMemory memory_of(const SwitchmlTerms& terms);
// The formula with its numbers, one line: "16 slots x 4 columns x 2 versions x 1152 bytes (...) + ... = ...".
std::string explain(const JobMemory& memory);

// How vectors are cut where no more than `payload` bytes of payload fit into a datagram: blocks of
// kUsualBlock elements, as many columns of them as fit; where few would, blocks that fill the datagram.
// `block`: elements that were asked for; 0: none were. Of a `tolerant` job results also name workers. Empty:
// a block of so many does not fit, or none does.
struct BlockShape {
  std::uint16_t block = 0;  // elements
  std::uint8_t columns = 1;
  std::size_t payload = 0;  // bytes of a datagram that is full
};
inline constexpr std::size_t kUsualBlock = 256;
std::optional<BlockShape> shape_of_blocks(std::size_t payload, std::size_t block, bool tolerant = false);
// Slots of a job such that all that can be on its way has room: what each worker has under way in its own
// socket, and what all of them have in the switch's. At least 1 and at most `quota`; `datagram` is a full
// one's bytes with all that is around it, `lanes` how many sockets or switches share the vector.
std::size_t slots_that_fit(std::size_t own_window, std::size_t switch_window, std::size_t workers,
                           std::size_t lanes, std::size_t datagram, std::size_t quota);

// Null, or what is wrong with the terms, whatever the switch has left (a static string).
const char* check(const JobTerms& terms);
const char* check(const SwitchmlTerms& terms);

}  // namespace talweg::protocol
