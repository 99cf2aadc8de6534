// What workers and operators say to a switch of streaming aggregation, and what it answers, over the
// connection by which they join: sealed records (store_message.h), each with one message.
//
//   worker: SwitchJoin ->                  <- SwitchWaiting, each time that it waits for others
//                                          <- SwitchOpened: the sums begin, in datagrams (aggregation.h)
//                                          <- SwitchGroup, to workers that have asked for it: where results
//                                             for all may come by multicast
//           SwitchHears, what has become of that ->
//           SwitchSum, when sums change, of one that is slow, and now and then ->
//                                          <- SwitchLeft: somebody has had enough
//           SwitchLeave, or SwitchGiveUp ->
//                                          <- SwitchRefused, at any time: it is over, and why
//   operator: SwitchOrder ->               <- SwitchText
//
// Workers of one job may be at several switches, one for each rack, below one: then each of these, once its
// own workers are there, joins the one above it as the worker `rack` of the job, and passes on what it is
// told.
//
// The connection is the lifeline of its worker: when it ends without SwitchLeave, the job ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "talweg/error.h"
#include "wire/cipher.h"
#include "wire/datagram.h"

namespace talweg::wire {

inline constexpr std::size_t kMaxJobName = 64;
inline constexpr std::size_t kMaxSwitchText = 512U << 10;  // what an operator is told of all jobs
inline constexpr std::size_t kMaxSwitchReason = 1024;
inline constexpr std::size_t kMaxNamedWorkers = 64;
inline constexpr std::size_t kMaxGiveUp = 224;  // of what a worker says of its failure
// Of what a switch is told. It keeps no more of a connection than that.
inline constexpr std::size_t kMaxSwitchRequest = 256;

struct SwitchJoin {
  std::string job;  // a name: printable, without blanks
  std::uint16_t worker = 0;
  std::uint16_t workers = 1;
  std::uint16_t block = 0;    // elements, the same for all workers; 0: as the switch finds best
  bool ordered = false;       // floats are summed in the order of workers
  std::uint16_t payload = 0;  // of the largest datagram that the worker's path takes
  std::uint32_t window = 0;   // bytes of datagrams that may wait at the worker
  // Which of the job's switches this is, and how many there are below one; 1: this one is the only one.
  std::uint16_t rack = 0;
  std::uint16_t racks = 1;
  std::uint16_t all = 0;  // workers at all of them, whose number decides a scale; 0: `workers`
  // Of a switch that joins the one above it: as many as it serves itself. 0: of a worker.
  std::uint16_t threads = 0;
  std::uint16_t slots = 0;  // of each thread
  // Rounds may end without some of the workers, as far as these say (protocol/aggregation/tolerance.h). A bit
  // beside `ordered`: other messages are what they were, and a switch that does not know it takes none that
  // has it.
  bool tolerant = false;
  bool encrypted = false;  // nobody else can read its datagrams; else as `tolerant`
  // Of a worker: it takes results from a multicast group, too, and says of it what SwitchHears has. Said in
  // place of `slots`, of which a worker has none: a switch that does not know it does not look there.
  bool by_group = false;
  bool is_rack() const { return threads != 0; }
  std::uint16_t in_all() const { return all == 0 ? workers : all; }
  bool operator==(const SwitchJoin&) const = default;
};
struct SwitchLeave {
  std::uint32_t sums = 0;  // that it has taken part in
  bool operator==(const SwitchLeave&) const = default;
};
// What a worker's sums are from this one on, until it says otherwise: it speaks of each that is not like the
// one before it, at its start, so that workers that do not mean the same sums can be told.
struct SwitchSum {
  std::uint32_t sum = 0;  // its number, from 1
  std::uint64_t count = 0;
  std::uint8_t format = 0;  // AggregationFormat
  bool sparse = false;
  bool operator==(const SwitchSum&) const = default;
};
// A worker's sum has failed: the job is over for all of its workers, who are to hear why.
struct SwitchGiveUp {
  ErrorCode code = ErrorCode::timeout;
  std::string why;
  bool operator==(const SwitchGiveUp&) const = default;
};
enum class SwitchDo : std::uint8_t { status, drain, reload };
struct SwitchOrder {
  SwitchDo what = SwitchDo::status;
  bool operator==(const SwitchOrder&) const = default;
};
struct SwitchWaiting {
  std::uint16_t missing = 0;
  std::vector<std::uint16_t> workers;  // the first of them
  bool racks = false;                  // they are switches, which the one above waits for
  bool operator==(const SwitchWaiting&) const = default;
};
struct SwitchOpened {
  std::uint32_t job = 0;  // its number, in datagrams
  std::uint32_t epoch = 0;
  std::uint16_t port = 0;  // of the switch's first thread; the others have those behind it
  std::uint16_t threads = 1;
  std::uint16_t slots = 1;  // of each thread
  std::uint8_t columns = 1;
  std::uint16_t block = 1;
  DatagramProtection protection = DatagramProtection::checksum;
  CipherKind cipher = CipherKind::chacha20_poly1305;
  Secret secret{};         // of this life of the job, from which all keys of its datagrams are derived
  std::uint32_t life = 0;  // the same number for all of the job's workers, at whichever switch they are
  bool operator==(const SwitchOpened&) const = default;
};
// A multicast group and its port, by which results for all of the job's workers may come.
inline constexpr std::size_t kMaxGroupAddress = 64;
struct SwitchGroup {
  std::string at;  // "239.1.2.3:61000"
  bool operator==(const SwitchGroup&) const = default;
};
// What a worker says of it.
enum class GroupWord : std::uint8_t {
  joined,  // its host has been told to
  heard,   // a probe of each thread has come by it
  lost,    // too much of what is sent to it does not come
  cannot,  // its host does not join it
};
inline constexpr std::size_t kMaxGroupReason = 192;
struct SwitchHears {
  GroupWord what = GroupWord::joined;
  std::uint32_t attempt = 0;  // of heard and lost: that of the probes
  std::uint32_t missing = 0;  // of lost: so many results have not come
  std::uint32_t of = 0;       // of so many
  std::string why = {};       // of cannot
  bool operator==(const SwitchHears&) const = default;
};
struct SwitchLeft {
  std::uint16_t worker = 0;
  std::uint32_t sums = 0;
  bool rack = false;  // it is a switch, at the one above
  bool operator==(const SwitchLeft&) const = default;
};
struct SwitchRefused {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string reason;
  bool operator==(const SwitchRefused&) const = default;
};
struct SwitchText {
  std::string text;
  bool operator==(const SwitchText&) const = default;
};

using SwitchMessage =
    std::variant<SwitchJoin, SwitchLeave, SwitchSum, SwitchOrder, SwitchWaiting, SwitchOpened, SwitchLeft,
                 SwitchRefused, SwitchText, SwitchGiveUp, SwitchGroup, SwitchHears>;

// Texts that are too long are cut.
std::string encode(const SwitchMessage& message);
// Empty when the bytes are not exactly one message within the bounds.
std::optional<SwitchMessage> decode_switch_message(std::span<const std::byte> bytes);

// 1 to kMaxJobName printable characters of ASCII without blanks.
bool is_job_name(const std::string& name);

}  // namespace talweg::wire
