#include "protocol/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/collectives.h"
#include "base/data_types.h"
#include "forest/agreement.h"
#include "talweg/error.h"

namespace talweg::protocol {

namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// What a rank calls the length of its part of the collective, in errors and to ranks that know all counts.
std::int64_t shown_count(const forest::Request& q, int rank) {
  switch (facts(q.op).knows) {
    case Knows::pairs:
      return forest::input_count(q, rank);
    case Knows::own:
      return rank == q.root ? sum_of(q.counts) : q.counts[static_cast<std::size_t>(rank)];
    case Knows::all:
      break;
  }
  return sum_of(q.counts);
}

}  // namespace

void Operation::set_deadline(std::int64_t now_ns, std::int64_t timeout_ns) {
  deadline_ns = now_ns + timeout_ns;
  question_ns = deadline_ns - std::min(timeout_ns / 4, kQuestionNs);
}

forest::Request message_request(int source, int destination, int size, std::int64_t count, DataType type) {
  return {Collective::send_recv, size,    source,
          destination,           {count}, static_cast<std::int64_t>(size_of(type))};
}

forest::Request known_to(forest::Request q, int rank) {
  const auto n = static_cast<std::size_t>(q.ranks);
  const auto me = static_cast<std::size_t>(rank);
  const Knows knows = facts(q.op).knows;
  for (std::size_t i = 0; i < q.counts.size(); ++i) {
    // Offsets in a root's buffer depend on all counts; elsewhere only our part has a place.
    const bool known = knows == Knows::all || (knows == Knows::own && (rank == q.root || i == me)) ||
                       (knows == Knows::pairs && (i / n == me || i % n == me));
    if (!known) q.counts[i] = 0;
  }
  return q;
}

forest::Request request_of(const Call& call, int rank, int size) {
  forest::Request q;
  q.op = call.op;
  q.ranks = size;
  q.root = facts(call.op).rooted ? call.root : 0;
  q.element_size = static_cast<std::int64_t>(facts(call.type).bytes);
  const auto n = static_cast<std::size_t>(size);
  switch (facts(call.op).counts) {
    case Counts::none:
      q.counts = {0};
      break;
    case Counts::one:
      q.counts = {static_cast<std::int64_t>(call.count)};
      break;
    case Counts::per_rank:
      q.counts.assign(call.counts.begin(), call.counts.end());
      return known_to(std::move(q), rank);
    case Counts::per_pair: {
      const auto me = static_cast<std::size_t>(rank);
      q.counts.assign(n * n, 0);
      for (std::size_t r = 0; r < n; ++r) {
        q.counts[me * n + r] = static_cast<std::int64_t>(call.counts[r]);
        q.counts[r * n + me] = static_cast<std::int64_t>(call.out_counts[r]);
      }
    }
  }
  return q;
}

Operation make_operation(const Call& call, int rank, const forest::Request& q) {
  const CollectiveFacts& what = facts(q.op);
  const ReduceOp reduction = what.reduces ? call.reduction : ReduceOp::sum;
  Operation op;
  op.operands.in = static_cast<const std::byte*>(what.one_buffer ? call.out : call.in);
  op.operands.out = static_cast<std::byte*>(call.out);
  op.operands.type = call.type;
  if (what.sums) {
    op.operands.reduce = kernel::reduce_function(call.type, reduction);
    if (op.operands.reduce == nullptr)
      throw Error(ErrorCode::unsupported, fmt::format("{}: no reduction {} for elements of type {}",
                                                      what.name, name(reduction), name(call.type)));
    if (reduction == ReduceOp::avg) op.operands.divisor = q.ranks;
  }
  const bool digest = what.counts == Counts::per_rank && what.knows == Knows::all;
  op.signature = {q.op,
                  call.type,
                  reduction,
                  q.root,
                  shown_count(q, rank),
                  digest ? wire::layout_digest(q.counts.data(), q.counts.size()) : 0};
  const auto n = static_cast<std::size_t>(q.ranks);
  const auto me = static_cast<std::size_t>(rank);
  if (what.knows == Knows::pairs) {
    for (std::size_t r = 0; r < n; ++r) {
      op.tell.push_back(q.counts[me * n + r]);
      op.expect.push_back(q.counts[r * n + me]);
    }
  } else if (what.knows == Knows::own) {
    // A pair without the root has nothing to agree on.
    op.tell.assign(n, kUnknownCount);
    op.expect = op.tell;
    const bool gathers = what.output == Extent::root;
    std::vector<std::int64_t>& of_root = gathers ? op.expect : op.tell;
    std::vector<std::int64_t>& of_others = gathers ? op.tell : op.expect;
    if (rank == q.root)
      of_root = q.counts;
    else
      of_others[static_cast<std::size_t>(q.root)] = q.counts[me];
  }
  op.all_contribute = forest::data_carry_agreement(q);
  op.fence = !moves_data(q.op);  // a barrier
  op.priority = call.options.priority;
  return op;
}

Message make_message(const Call& call, int rank) {
  const bool sends = call.root == rank;
  Message message;
  message.peer = sends ? call.peer : call.root;
  message.tag = call.tag;
  message.signature = {call.op, call.type, ReduceOp::sum, 0, static_cast<std::int64_t>(call.count), 0};
  message.send = sends ? static_cast<const std::byte*>(call.in) : nullptr;
  message.receive = sends ? nullptr : static_cast<std::byte*>(call.out);
  message.priority = call.options.priority;
  return message;
}

}  // namespace talweg::protocol
