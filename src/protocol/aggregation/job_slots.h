// The rounds of one job's columns: what a switch knows of each, in memory that was lent once.
//
// A column sums one block after another, each in a round of its own; rounds take its two cells in turn. While
// one cell fills, the other keeps the result before it, for whom has not got it. A round is known by its
// operation and its block, and these ascend: what comes of an earlier round, late, is recognised, and a later
// round cannot begin in the cell of the last one, nor before that one has ended.
//
// So a worker may go on to the next round once it has the result of this one, and need not wait for others to
// have it: they have contributed to this round, or there would be no result, and until they have it too they
// do not contribute to the next one, whose end alone would let the cell be used again. Where rounds may end
// without workers there are three cells (tolerance.h), and versions are looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>

#include "protocol/aggregation/contributors.h"
#include "protocol/aggregation/gaps.h"
#include "protocol/aggregation/lent_memory.h"
#include "protocol/aggregation/switch_terms.h"
#include "protocol/aggregation/tolerance.h"
#include "wire/aggregation.h"

namespace talweg::protocol {

// All zero: empty.
struct Round {
  enum class State : std::uint8_t {
    empty,
    filling,
    above,  // summed here; the switch above has not answered
    done,
  };
  std::uint64_t block = 0;
  std::uint64_t next = 0;  // the least of those heard
  // When it was last sent above, or is to be, where that switch is busy; of a job that is tolerant: when half
  // had come.
  std::int64_t passed_ns = 0;
  std::uint64_t number = 0;  // of the result, among all that were sent to all; 0: it has not been
  std::uint32_t operation = 0;
  std::uint16_t remaining = 0;  // workers that have not been heard
  std::uint16_t count = 0;      // elements; 0: nobody has data
  std::int16_t exponent = 0;    // the largest of those that name `next`
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  State state = State::empty;
  bool version = false;         // as workers call it
  std::uint8_t absent = 0;      // workers that it has ended without
  std::uint16_t allowance = 0;  // rounds of the operation that may end without any one worker

  // Of pairs any number is right.
  bool count_differs(const wire::AggregationEntry& entry) const {
    return format != wire::AggregationFormat::pairs && entry.data && count > 0 && count != entry.count;
  }
};

// The largest payload of a result or contribution.
std::size_t result_bytes(const JobTerms& terms);
// The largest payload that the job's workers and its switch send to each other.
std::size_t packet_bytes(const JobTerms& terms);
// Results whose slots are remembered: more than can be on their way, as each is for a column of its own.
std::size_t results_kept(const JobTerms& terms);

class JobSlots {
 public:
  JobSlots(const JobTerms& terms, std::pmr::memory_resource& memory);

  // A contribution's or query's place among the rounds of its column.
  enum class Turn : std::uint8_t { current, begins, late, early };
  struct Cell {
    Round& round;
    Contributors heard;
    Contributors has_part;  // where sums are ordered
    Contributors absent;    // where rounds may end without workers
    std::byte* sums;
    std::byte* parts;
  };
  // `version`: below versions().
  Cell cell(std::size_t slot, std::size_t column, std::size_t version);
  // That the round is in, or would begin in.
  Cell cell_of(std::size_t slot, const wire::AggregationEntry& entry, std::uint32_t operation);
  // The column's last round before the one in this cell, if it is still there; of a job that is tolerant.
  std::optional<Cell> before(const Cell& cell, std::size_t slot, std::size_t column);
  Turn turn(std::size_t slot, const wire::AggregationEntry& entry, std::uint32_t operation);
  // Memory for packets, Peers and everything else that goes with the job.
  std::span<Peer> peers();
  std::span<Gaps> gaps();
  // Of a job that is tolerant.
  std::span<Attendance> attendance();
  std::span<Lingering> lingering();
  // By slot, of a job with a switch above: when that switch will take it again; 0: it is not held back.
  std::span<std::int64_t> held_back();
  // The slot of the result of this number, if it is one of the last.
  std::uint16_t& slot_of_result(std::uint16_t number);
  std::span<std::byte> packet(std::size_t i);

  void begin(Cell& cell, std::uint32_t operation, const wire::AggregationEntry& entry,
             wire::AggregationFormat format);
  // The worker's data, and what it says of its next block. `data` may be empty.
  void add(Cell& cell, std::uint16_t worker, const wire::AggregationEntry& entry,
           std::span<const std::byte> data);
  // Once all have been heard: the sums are complete.
  void finish(Cell& cell);
  // The result of the switch above takes the place of what was summed here.
  void replace(Cell& cell, const wire::AggregationEntry& entry, std::span<const std::byte> data);
  // The round as an entry of a result, or of a contribution to the switch above.
  void write(const Cell& cell, std::uint8_t column, wire::AggregationWriter& writer) const;

 private:
  Turn turn_of_three(std::size_t slot, const wire::AggregationEntry& entry, std::uint32_t operation);
  bool is_ordered(wire::AggregationFormat format) const;
  std::size_t most_pairs() const { return wire::most_elements(wire::AggregationFormat::pairs, terms_.block); }
  void add_pairs(Cell& cell, std::uint16_t worker, std::span<const std::byte> data);
  void finish_pairs(Cell& cell);
  void write_coded(const Round& round, const std::byte* sums, std::byte* data) const;

  const JobTerms terms_;
  const JobMemory layout_;
  LentMemory memory_;
};

}  // namespace talweg::protocol
