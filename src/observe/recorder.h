// The flight recorder of one group: its last operations, for the day on which something goes wrong.
//
//   const auto ticket = recorder.start(note);    // when a call begins: no clock; no allocation once it is full
//   recorder.end(ticket, now);                   // or fail(ticket, ...)
//   to_json(head, recorder, session.pending())   // at any time, under the lock of calls that begin and end
//
// Memory is taken as calls come, for as many as are kept at most: a group that is hardly used costs little. A
// size of 0 turns it off.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/clock_offset.h"
#include "protocol/session/session.h"
#include "talweg/bounded_loss.h"

namespace talweg::observe {

// A name kept without allocation, cut where it does not fit, with a zero at its end.
using ShortName = std::array<char, 24>;
ShortName short_name(std::string_view text);

// What is known of a call when it begins.
struct CallNote {
  // bounded and its halves: an all-reduce that may lose a part (talweg/bounded_loss.h).
  enum class Kind : std::uint8_t { collective, send, receive, bounded, bounded_push, bounded_pull };
  Kind kind = Kind::collective;
  wire::Signature signature;
  std::uint64_t sequence = 0;  // collectives, and apart from these bounded ones
  int peer = -1;               // messages; -1: from any rank
  std::uint32_t tag = 0;       // messages
  std::int64_t bytes = 0;      // of signature.count elements
  std::int64_t started_ns = 0;
  std::int64_t deadline_ns = 0;
  ShortName algorithm{};
  std::uint32_t trees = 0;
};
constexpr bool is_bounded(CallNote::Kind kind) {
  return kind >= CallNote::Kind::bounded;
}
// "all_reduce", "send", "recv", "bounded_all_reduce", "bounded_push", "bounded_pull"
const char* call_name(CallNote::Kind kind, Collective op);

class Recorder {
 public:
  enum class State : std::uint8_t { in_flight, completed, failed };
  // Every call writes one, and with as many as are kept it is no longer in the nearest cache: so it is two
  // cache lines, and the next one is fetched ahead.
  struct alignas(64) Entry {
    CallNote note;
    State state = State::in_flight;
    protocol::SumWay way = protocol::SumWay::none;
    std::int64_t ended_ns = 0;
  };
  static_assert(sizeof(Entry) == 128);
  // Of an operation that failed, or is about to.
  struct Failure {
    ErrorCode code = ErrorCode::aborted;
    std::string text;         // what the caller was told
    std::vector<int> absent;  // who had not started it when it was given up
    std::vector<int> silent;  // whose data were missing then
  };

  // Of a bounded call: its report without what was lost of each layer, as there may be hundreds. Of several
  // the worst, as layer and bytes, the most first.
  struct Losses {
    LossReport report;
    std::vector<std::pair<std::size_t, std::uint64_t>> worst_layers;
  };
  static constexpr std::size_t kWorstLayers = 16;

  // Keeps so many, rounded up to a power of two: a call takes less time than a division by another number
  // would.
  explicit Recorder(std::size_t operations) : most_(operations == 0 ? 0 : std::bit_ceil(operations)) {}

  std::uint64_t start(const CallNote& note);
  void end(std::uint64_t ticket, std::int64_t now_ns, protocol::SumWay way = protocol::SumWay::none);
  void fail(std::uint64_t ticket, std::int64_t now_ns, ErrorCode code, const std::string& text);
  // Whom an operation that is about to fail waits for.
  void miss(std::uint64_t ticket, const protocol::Session::Pending& pending);
  // What a bounded call that is about to end has lost.
  void lose(std::uint64_t ticket, const LossReport& report);

  std::uint64_t started() const { return next_; }  // operations in all
  std::uint64_t first() const { return next_ - std::min<std::uint64_t>(next_, kept_); }
  // The operation with this ticket; null when it has been overwritten.
  const Entry* find(std::uint64_t ticket) const;
  // Null where nothing has gone wrong with it, or it has been overwritten.
  const Failure* failure(std::uint64_t ticket) const;
  const Losses* losses(std::uint64_t ticket) const;  // null where none were told

 private:
  Entry* change(std::uint64_t ticket);

  const std::size_t most_;
  std::size_t kept_ = 0;  // entries_.size()
  std::vector<Entry>
      entries_;  // ticket t in entries_[t mod kept_]; grows only while no ticket has gone round
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, Failure> failures_;  // by ticket
  std::map<std::uint64_t, Losses> losses_;
};

// Who speaks in a record, and when.
struct RecordHead {
  std::uint64_t job = 0;    // drawn by rank 0 when the group was joined: the same on all its ranks
  std::uint32_t group = 0;  // 0: the group that was joined, else one that was split from it
  int rank = 0;
  std::vector<int> members;  // group rank -> rank of the joined group
  std::vector<std::string> hosts;
  std::string reason;  // why this was written
  std::int64_t monotonic_ns = 0;
  std::int64_t wall_ns = 0;
  ClockOffset clock;
};

// Of a record's form. In the first one there were no bounded calls, whose numbers would be taken for those of
// other collectives, and in the second one none of their halves.
inline constexpr int kRecordVersion = 3;

// One line of JSON; `talweg doctor` reads it. docs/seeing.md says what the fields are. With
// each pending operation comes its ticket.
std::string to_json(const RecordHead& head, const Recorder& recorder,
                    const std::vector<std::pair<std::uint64_t, protocol::Session::Pending>>& pending);

}  // namespace talweg::observe
