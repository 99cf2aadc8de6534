// AggregationWorker: one worker's side of sums that a switch makes (switch.h).
//
//   AggregationWorker worker(terms, sink);       // sink.send(header, payload): a datagram to the switch
//   worker.start(sum, operation, deadline_ns, now_ns);
//   worker.on(header, payload, now_ns);          // each datagram from the switch
//   worker.on_time(now_ns);                      // once next_time_ns() has come
//   worker.done()  worker.failure()              // all of `sum.out` is written; or it has failed
//
// Blocks are dealt out to columns: block b belongs to column b mod (slots x columns). Each column has one
// round in flight, and a result is what sends its next contribution: the window is as wide as there are
// slots, and clocks itself. What a worker says in a round: its part of the round's block, if it has any, and
// which block of the column is its next one. The result says the least of these. Blocks between the two are
// zero on all workers, and written as such.
//
// Of pairs, what a column has are keys (own_pairs.h), and its rounds go from one key to another: a worker
// says what it has from the round's first key on, as much as an entry holds, and which key is its next one.
// What the switch has no room for it leaves out, and its result goes on with the first key of these.
//
// A sparse sum has as many columns as the last one of its shape was worth (column_count.h).
//
// The version of a column changes with each of its rounds, from one operation to the next, too: it is kept
// here for as long as the epoch. An operation that has failed ends the epoch.
//
// Exactness: the format `scaled`, and i32, come to the same bits in whatever order contributions arrive. A
// column of such floats first agrees on an exponent, in a round without a block.
//
// What is lost is sent again: both sides number what they send and name what has not come of the other's
// (gaps.h). Only results to all say what is missing: one that was asked for may be ahead of them. What
// numbers cannot tell of, the last datagrams and those that were lost again, is asked for: the switch says of
// a round that has not ended whether our part of it is there (a query), of the oldest slots, when nothing has
// ended for a part of a round, or when one has taken much longer than others do and one that was sent later
// has ended; then less and less often. Until a later one has ended, the result may only wait in a queue,
// however long that has become since times were measured: to have it repeated would make the queue longer. At
// the deadline the operation fails, and the text names the workers that are missing.
//
// Where a part may be missing (Sum::tolerance) the switch may end rounds without some workers. The result
// names them, and is the same for all; who finds itself among them keeps its block, and the switch to its
// word.
//
// Pure: no socket, no clock, no thread. No allocation once an operation of the same size has been run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "protocol/aggregation/column_count.h"
#include "protocol/aggregation/gaps.h"
#include "protocol/aggregation/own_pairs.h"
#include "protocol/aggregation/round_timer.h"
#include "protocol/aggregation/tensor.h"
#include "talweg/error.h"
#include "wire/datagram.h"

namespace talweg::protocol {

class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  // `payload` is valid during the call. The header's length is set, its number is not.
  virtual void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) = 0;
};

struct WorkerTerms {
  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  std::uint16_t worker = 0;  // as its switch numbers it
  // Of the whole tree of switches. It decides the scale of integers, and must be the same everywhere.
  std::uint32_t workers = 1;
  std::uint16_t first_slot = 0;
  std::uint16_t slots = 1;
  std::uint8_t columns = 1;
  std::uint16_t block = 256;  // elements of one, at most
  RoundTimes times;
  std::uint16_t rack = 0;  // of its switch, where there are several below another
};

struct WorkerCounters {
  std::uint64_t contributions = 0;  // entries with data
  std::uint64_t adverts = 0;        // and without
  std::uint64_t results = 0;        // entries that ended a round
  std::uint64_t ignored = 0;        // entries of rounds that had ended, or of no round
  std::uint64_t gaps = 0;           // datagrams with results that had not come when later ones had
  std::uint64_t timeouts = 0;       // entries that the switch was asked about, as they had not ended for long
  std::uint64_t asked_for = 0;  // entries that were sent again, as the switch answered that it missed them
  std::uint64_t named = 0;      // and as it named their datagrams
  std::uint64_t held_back = 0;  // datagrams that the switch was too busy for
  std::uint64_t malformed = 0;
  std::uint64_t absences = 0;  // blocks of ours that are missing in their sums
  bool operator==(const WorkerCounters&) const = default;
  WorkerCounters& operator+=(const WorkerCounters& other);
};

struct SumFailure {
  ErrorCode code = ErrorCode::timeout;
  std::string text;
  std::string why = {};  // of it, without which sum of which job it was
};

class AggregationWorker {
 public:
  // Throws Error{invalid_argument}. `sink` must outlive it.
  AggregationWorker(const WorkerTerms& terms, DatagramSink& sink);

  // Operations are numbered in ascending order, the same on all workers; one at a time. Throws
  // Error{invalid_argument}.
  void start(const Sum& sum, std::uint32_t operation, std::int64_t deadline_ns, std::int64_t now_ns);
  void on(const wire::DatagramHeader& header, std::span<const std::byte> payload, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const { return next_ns_; }

  bool done() const { return !failure_ && open_ == 0; }
  const std::optional<SumFailure>& failure() const { return failure_; }
  const WorkerCounters& counters() const { return counters_; }
  const WorkerTerms& terms() const { return terms_; }
  // That a sum would have now.
  std::size_t slots_for(const Sum& sum) const { return columns_for(sum) / terms_.columns; }
  // Of the operation that has run last: blocks of each worker, those that may be missing of each, those that
  // are of this one, and of all together.
  struct Missing {
    std::uint64_t blocks = 0;
    std::uint64_t allowance = 0;
    std::uint64_t own = 0;
    std::uint64_t all = 0;
    bool operator==(const Missing&) const = default;
  };
  const Missing& missing() const { return absent_; }
  // Until when the switch has said, in this operation, that it is busy; before it began: it has not.
  std::int64_t busy_until_ns() const { return busy_until_ns_; }

 private:
  struct Column {
    std::uint64_t block = 0;         // of the round in flight
    std::uint64_t own_next = 0;      // our first one behind it
    std::int64_t sent_ns = 0;        // for the first time
    std::int64_t mean_ns = 0;        // that rounds took by then
    std::int64_t due_ns = 0;         // it is asked about; of one that is held back: sent again
    std::uint64_t number = 0;        // of the datagram that it was in last
    std::int16_t exponent = 0;       // of all workers, for `block`
    std::int16_t next_exponent = 0;  // ours, for own_next
    std::uint8_t in_vain = 0;
    bool version = false;
    bool open = false;
    bool held_back = false;  // the switch has said when to send it again
    bool fresh = false;      // the round has not been sent yet
    bool first = false;      // the operation's first round: it also waits for those that have not started
    bool chosen = false;     // is to be in the datagram that is made next
  };

  std::size_t index(std::size_t slot, std::size_t column) const { return slot * terms_.columns + column; }
  // Columns among which the operation's blocks are dealt out.
  std::uint64_t step() const { return step_; }
  std::uint64_t columns_for(const Sum& sum) const;
  std::size_t slots() const { return step_ / terms_.columns; }  // in use
  std::int16_t code_of_columns() const;
  const Column* matching(std::size_t slot, const wire::AggregationEntry& entry) const;
  void look_ahead(Column& column, std::size_t index);
  void accept(std::size_t slot, const wire::AggregationEntry& entry, std::span<const std::byte> data,
              std::int64_t now_ns);
  bool is_missing(const wire::AggregationEntry& entry, std::span<const std::byte> data) const;
  void finish_blocks(Column& column, std::size_t index, const wire::AggregationEntry& entry,
                     std::span<const std::byte> data);
  void note_losses(std::uint64_t block, const wire::AggregationEntry& entry, std::span<const std::byte> data,
                   bool own) const;
  void fill(Column& column, std::size_t index, wire::AggregationEntry& entry);
  void end(std::int64_t now_ns);
  bool by_pairs() const { return tensor_.sum().format == wire::AggregationFormat::pairs; }
  bool sound(const Column& column, const wire::AggregationEntry& entry,
             std::span<const std::byte> data) const;
  void send_chosen(std::size_t slot, std::int64_t now_ns);
  // Whether its time alone is enough. While results come, it also takes one of what was sent later.
  bool may_ask(const Column& column) const { return quiets_ > 0 || column.number < newest_ended_; }
  void ask(std::size_t slot, std::int64_t now_ns);
  void ask_for(std::uint16_t result);
  void measure(const Column& column, std::int64_t round_ns);
  void forget_silence(std::int64_t now_ns);
  void note_pause(bool answer, std::int64_t now_ns);
  void on_gap(const wire::AggregationMessage& message, std::int64_t now_ns);
  std::int64_t quiet_after_ns() const;
  void on_refusal(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                  std::int64_t now_ns);
  void on_missing(std::size_t slot, const wire::AggregationMessage& message, std::int64_t now_ns);
  void wake_at(std::int64_t when_ns) { next_ns_ = std::min(next_ns_, when_ns); }
  void fail(ErrorCode code, std::string why);
  std::string who_is_missing() const;
  wire::DatagramHeader header(wire::AggregationType type, std::size_t slot) const;

  const WorkerTerms terms_;
  DatagramSink& sink_;
  SummedTensor tensor_;
  OwnPairs pairs_;  // of a sum that has this format; the tensor's blocks are its granules
  RoundTimer timer_;
  std::vector<Column> columns_;
  std::uint64_t step_ = 1;  // the first of them
  ColumnCount count_;
  bool counts_ = false;           // the sum's columns are to be agreed on
  std::int64_t began_ns_ = 0;     // the sum
  std::int64_t shortest_ns_ = 0;  // of its rounds
  std::uint64_t results_before_ = 0;
  std::vector<std::byte> packet_;
  std::uint64_t numbers_ = 0;       // contributions sent; the wire has 16 bits of it
  std::uint64_t newest_ended_ = 0;  // the highest number that a round which has ended was sent in
  Gaps results_{};                  // of the switch
  std::int64_t quiet_ns_ = 0;       // nothing has ended by then: what is oldest is asked about
  std::int64_t said_ns_ = -1;       // when the switch has last said anything, in this operation
  std::int64_t pause_ns_ = 0;  // the longest between what comes of it when nothing was lost, forgotten slowly
  std::uint32_t quiets_ = 0;   // one after the other
  std::size_t open_ = 0;       // columns
  std::uint32_t operation_ = 0;
  bool started_ = false;
  std::int64_t deadline_ns_ = 0;
  std::int64_t next_ns_ = std::numeric_limits<std::int64_t>::max();
  std::optional<SumFailure> failure_;
  std::vector<std::uint16_t> missing_;  // as the switch has said last
  bool heard_ = false;                  // anything of this operation, from the switch
  bool above_ = false;                  // the switch waits for the one above it
  bool busy_ = false;                   // it has said so last
  std::int64_t busy_until_ns_ = std::numeric_limits<std::int64_t>::min();
  Missing absent_;
  WorkerCounters counters_;
};

}  // namespace talweg::protocol
