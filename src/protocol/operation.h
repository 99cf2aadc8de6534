// Operation: one call as the protocol sees it. What a call means (who contributes, who must be told what,
// whether the data carry the agreement) is worked out here and nowhere else, from the table of collectives:
// for groups, for the simulator, and for tests.
//
//   const forest::Request request = request_of(call, rank, size);       // what is to be planned
//   Operation operation = make_operation(call, rank, plan);             // the plan for that request
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "forest/forest.h"
#include "protocol/transfer.h"
#include "talweg/call.h"
#include "wire/signature.h"

namespace talweg::protocol {

inline constexpr std::int64_t kUnknownCount = -1;

// Before a call's deadline: long enough for every rank that lives to answer.
inline constexpr std::int64_t kQuestionNs = 1'000'000'000;

struct Operation {
  std::shared_ptr<const Plan> plan;
  wire::Signature signature;
  Operands operands;
  // Where counts differ by pair (all_to_all, gather, scatter): what this rank tells each other rank and what
  // it expects to be told. Empty: signature.count for all.
  std::vector<std::int64_t> tell;
  std::vector<std::int64_t> expect;
  bool all_contribute = false;  // the data carry the agreement
  bool fence = false;           // ends after everything that was started here before it
  std::int64_t deadline_ns = 0;
  // Before the deadline: when all ranks are asked whether they have started it, so that who answers nothing
  // is named, and not who waits in vain itself. 0: they are not asked.
  std::int64_t question_ns = 0;
  int priority = 0;
  void* user = nullptr;

  void set_deadline(std::int64_t now_ns, std::int64_t timeout_ns);
};

// A point-to-point message.
struct Message {
  int peer = 0;  // receive: may be kAnySource
  std::uint32_t tag = 0;
  wire::Signature signature;
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::int64_t deadline_ns = 0;
  int priority = 0;
  void* user = nullptr;
};

// What `call`, made by rank `rank` of `size`, asks a planner for: with the counts that this rank knows. The
// call's counts must be as many as its operation wants.
forest::Request request_of(const Call& call, int rank, int size);
// Of a message that both sides have agreed on.
forest::Request message_request(int source, int destination, int size, std::int64_t count, DataType type);
// The part of a request, of which all counts are known, that rank `rank` knows when it calls.
forest::Request known_to(forest::Request request, int rank);

// What `call` makes rank `rank` do. `request` is what was planned; counts that this rank does not know do not
// matter in it. The plan, deadlines and `user` are still to be filled in. Throws Error{unsupported} for a
// reduction that the type does not have.
Operation make_operation(const Call& call, int rank, const forest::Request& request);
Message make_message(const Call& call, int rank);

}  // namespace talweg::protocol
