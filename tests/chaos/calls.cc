#include "chaos/calls.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/at.h"
#include "base/collectives.h"
#include "cluster/cluster.h"
#include "forest/block_turns.h"
#include "forest/cost.h"
#include "forest/forest_bytes.h"
#include "protocol/flood.h"
#include "protocol/forest/local_plan.h"

namespace talweg::chaos {

namespace {

constexpr std::int64_t kFloodPauseNs = 7'000'000;

std::byte* bytes(std::vector<std::int32_t>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

// Sums of these depend on their order.
std::int32_t float_of_any_magnitude(int rank, std::size_t element, std::uint64_t call) {
  const auto mixed =
      static_cast<std::uint32_t>((element + 1) * 2654435761U + (call * 64 + at(rank)) * 40503U);
  const auto mantissa = static_cast<float>(mixed >> 8) - static_cast<float>(1 << 23);
  return std::bit_cast<std::int32_t>(std::ldexp(mantissa, static_cast<int>(mixed % 24)));
}

// All that contribute send to the node behind the ranks, which sends to all that receive.
void lead_through_helper(forest::Forest& forest) {
  const forest::NodeId helper = forest.request.ranks;
  forest.nodes = helper + 1;
  for (forest::Tree& tree : forest.trees) {
    tree.root = helper;
    tree.up.clear();
    tree.down.clear();
    for (const forest::NodeId rank : tree.contributors) tree.up.push_back({rank, helper});
    for (const forest::NodeId rank : tree.receivers) tree.down.push_back({rank, helper});
  }
}

// What a rank calls that disagrees with the others.
protocol::RandomCall odd_call(const ScriptedCall& script) {
  protocol::RandomCall call = script.call;
  forest::Request& q = call.request;
  const bool whole = facts(q.op).counts == Counts::one;
  if (whole && script.number % 2 == 0) {
    ++q.counts[0];
  } else if (q.op == Collective::barrier) {
    q.op = Collective::all_reduce;
    q.counts = {5};
    call.planner = "chain";
  } else {
    q.op = Collective::barrier;
    q.counts = {0};
    q.root = 0;
    call.planner = "binomial";
    call.reduction = ReduceOp::sum;
  }
  return call;
}

// In which every other host is behind a slow link: `ranks` is the switch.
cluster::Cluster uneven_star(int ranks) {
  auto star = cluster::uniform_star(ranks, Bandwidth{1e9}, Nanoseconds{10'000});
  for (cluster::Link& link : star.links)
    if (link.from == ranks && link.to % 2 == 1) link.capacity.bits_per_second /= 1 + link.to;
  return star;
}

}  // namespace

bool Record::in_place() const {
  return script->call.in_place || facts(script->call.request.op).one_buffer;
}

std::shared_ptr<const protocol::Plan> Planning::plan(const ScriptedCall& script,
                                                     const forest::Request& request, int rank, bool shared) {
  std::shared_ptr<const forest::Forest> unshared;
  auto& slot = shared ? forests_[script.number] : unshared;
  if (!slot) {
    const auto network = cluster::uniform_star(request.ranks, Bandwidth{1e9}, Nanoseconds{10'000});
    auto forest =
        std::make_shared<forest::Forest>(forest::find_planner(script.call.planner).plan(request, network));
    if (!forest->sums_once)
      for (auto& tree : forest->trees) tree.chunk = script.call.chunk;
    if (script.helped) lead_through_helper(*forest);
    slot = forest;
  }
  protocol::PlanLimits limits = kLittle;
  limits.nodes = slot->nodes;
  if (rank == request.root) limits.lanes = forest::lanes_of(request, uneven_star(request.ranks));
  if (script.helped) limits.digest = forest::digest(*slot);
  return protocol::make_plan(slot, rank, limits);
}

std::shared_ptr<const forest::Forest> led_forest(const forest::Request& request, bool first) {
  std::vector<const forest::Planner*> able;
  for (const char* const name : {"chain", "binomial", "ring", "star", "direct"})
    if (const forest::Planner& p = forest::find_planner(name); p.serves(request)) able.push_back(&p);
  const auto network = cluster::uniform_star(request.ranks, Bandwidth{1e9}, Nanoseconds{10'000});
  auto forest =
      std::make_shared<forest::Forest>((first ? able.front() : able.back())->plan(request, network));
  for (forest::Tree& tree : forest->trees) tree.chunk = std::max<std::int64_t>(tree.slice.count / 9, 1);
  return forest;
}

steer::PlanSource::Plan Source::later(const forest::Request& request) {
  if (++asked_[request] < 2) return {nullptr, false};
  return {led_forest(request, false), true};
}

protocol::Operation operation_of(Record& record, Planning& planning) {
  const ScriptedCall& script = *record.script;
  const bool odd = script.odd == record.rank;
  ScriptedCall own = script;
  if (odd) {
    own.call = odd_call(script);
    own.helped = false;
  }
  const protocol::RandomCall& call = own.call;
  const forest::Request q = protocol::known_to(call.request, record.rank);

  record.request = q;
  protocol::Buffers& b = record.buffers;
  b = protocol::buffers_for(call, record.rank, script.number);
  if (script.rounds)
    for (std::size_t i = 0; i < b.in.size(); ++i)
      b.in[i] = float_of_any_magnitude(record.rank, i, script.number);
  const bool one_buffer = facts(q.op).one_buffer || call.in_place;
  if (facts(q.op).one_buffer && record.rank == q.root) b.expected = b.in;
  if (facts(q.op).one_buffer ? record.rank == q.root : call.in_place) b.out = b.in;
  record.before = b.out;

  protocol::Operation op = protocol::make_operation({.op = q.op,
                                                     .type = script.rounds ? DataType::f32 : DataType::i32,
                                                     .reduction = call.reduction,
                                                     .in = one_buffer ? b.out.data() : b.in.data(),
                                                     .out = b.out.data(),
                                                     .options = {.priority = call.priority}},
                                                    record.rank, q);
  op.user = &record;
  if (script.flooded && !odd) {
    const auto bytes = static_cast<std::size_t>(call.total()) * sizeof(std::int32_t);
    record.memory = 2 * static_cast<std::size_t>(q.ranks) * std::bit_ceil(std::max<std::size_t>(bytes, 64));
    op.plan = protocol::flood_plan(record.rank, q.ranks, bytes, kFloodPauseNs);
    return op;
  }
  const auto plan = planning.plan(own, q, record.rank, !odd && facts(q.op).knows == Knows::all);
  record.memory = most_memory(*plan);
  op.plan = plan;
  return op;
}

protocol::Message message_of(Record& record) {
  const ScriptedCall& script = *record.script;
  const bool sends = record.rank == script.source;
  std::int64_t count = script.call.request.counts[0];
  protocol::Buffers& b = record.buffers;
  b.expected.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < b.expected.size(); ++i)
    b.expected[i] = protocol::contribution(script.source, static_cast<std::int64_t>(i), script.number);
  if (script.odd == record.rank) ++count;
  if (sends) {
    b.in = b.expected;
    b.in.resize(static_cast<std::size_t>(count));
    b.expected.clear();
  } else {
    b.out.assign(static_cast<std::size_t>(count), -1);
  }
  record.before = b.out;
  protocol::Message m;
  m.peer = sends ? script.destination : script.any_source ? protocol::kAnySource : script.source;
  m.tag = script.tag;
  m.signature = {Collective::send_recv, DataType::i32, ReduceOp::sum, 0, count, 0};
  m.send = sends ? bytes(b.in) : nullptr;
  m.receive = sends ? nullptr : bytes(b.out);
  m.priority = script.call.priority;
  m.user = &record;
  return m;
}

std::shared_ptr<const protocol::Plan> message_plan(int size, int rank, int source, int destination,
                                                   std::int64_t count, DataType type) {
  const forest::Request q = protocol::message_request(source, destination, size, count, type);
  const auto network = cluster::uniform_star(size, Bandwidth{1e9}, Nanoseconds{10'000});
  auto forest = std::make_shared<forest::Forest>(forest::find_planner("direct").plan(q, network));
  for (auto& tree : forest->trees) tree.chunk = 500;
  return protocol::make_plan(std::move(forest), rank, kLittle);
}

// Per tree: what each child may have sent ahead, the sums on their way, the one being summed, results on
// their way from a node that keeps none, and the whole slice where the output is still an input.
std::size_t most_memory(const protocol::Plan& plan) {
  const auto rounded = [](std::size_t n) { return std::bit_ceil(std::max<std::size_t>(n, 64)); };
  std::size_t all = 0;
  const auto* const local = dynamic_cast<const protocol::LocalPlan*>(&plan);
  if (local == nullptr) return 0;
  for (const protocol::LocalTree& tree : local->trees) {
    std::size_t chunks = (tree.up_children.size() + 1) * tree.window + 1 + 2 * tree.taps.size();
    if (tree.out_offset < 0 && !tree.down_children.empty())
      chunks += tree.root ? std::min(tree.chunks, protocol::kResultWindows * tree.window) : tree.chunks;
    all += chunks * rounded(tree.chunk_bytes);
    if (local->slices_overlap) all += rounded(static_cast<std::size_t>(tree.bytes));
  }
  return all;
}

}  // namespace talweg::chaos
