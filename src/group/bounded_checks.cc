#include "group/bounded_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fail.h"
#include "protocol/bounded/loss_budget.h"
#include "protocol/bounded/shape.h"
#include "protocol/outbox.h"
#include "talweg/types.h"
#include "wire/datagram.h"

namespace talweg::group {

namespace {

constexpr double kMostLoss = 0.5;
constexpr int kMostQueues = 7;
constexpr std::size_t kLeastPacketBytes = 64;

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a != nullptr && b != nullptr && a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

// Of `whole`, whose part may be where it is in that, or elsewhere.
void check_part(const char* what, const BoundedCall& call, const void* whole, const void* its,
                BoundedPart part) {
  check_size(what, call.count, call.type);
  const std::size_t element = size_of(call.type);
  if (whole != nullptr && its != static_cast<const std::byte*>(whole) + part.first * element &&
      overlap(whole, call.count * element, its, part.count * element))
    refuse("{}: input and output overlap in part: expected one buffer or distinct ones", what);
}

void check_given(const char* what, const char* which, const void* buffer, std::size_t count) {
  if (count > 0 && buffer == nullptr)
    refuse("{}: the {} is null but {} elements are needed", what, which, count);
}

void check_servers(const BoundedLossOptions& options, int ranks) {
  if (const std::string why = protocol::complaint_about_servers(options.servers, ranks); !why.empty())
    refuse("bounded loss: {}", why);
  if (options.dedicated &&
      (options.servers.empty() || options.servers.size() == static_cast<std::size_t>(ranks)))
    refuse("bounded loss: dedicated servers, and all ranks are servers: nobody has anything to add");
}

void check_classes(const PacketClasses& classes) {
  for (const double droppable : {classes.droppable_front, classes.droppable_back})
    if (!(droppable >= 0 && droppable <= 1))
      refuse("bounded loss: a part of {} of the packets that may be dropped first: expected 0 to 1",
             droppable);
  if (classes.queues < 1 || classes.queues > kMostQueues)
    refuse("bounded loss: {} queues for layers: expected 1 to {}, as control has one of eight",
           classes.queues, kMostQueues);
  if (classes.keep_important && std::max(classes.droppable_front, classes.droppable_back) <= 0)
    refuse("bounded loss: keep_important where no packet is droppable: nothing could be missing");
}

}  // namespace

protocol::LossParts parts_of(const BoundedLossOptions& options) {
  return {options.p, options.p_sender, options.p_call};
}

protocol::ExchangeClasses classes_of(const PacketClasses& c, double depth) {
  const auto order = c.back_first ? protocol::LayerOrder::back_first : protocol::LayerOrder::front_first;
  return {protocol::queue_priority(depth, c.queues, order),
          protocol::drop_fraction(depth, c.droppable_front, c.droppable_back), c.keep_important};
}

const char* name(LossPolicy policy) {
  return policy == LossPolicy::zero ? "zero" : "rescale";
}

const char* name(observe::CallNote::Kind kind) {
  using Kind = observe::CallNote::Kind;
  return kind == Kind::bounded_push   ? "bounded push"
         : kind == Kind::bounded_pull ? "bounded pull"
                                      : "bounded all_reduce";
}

void check_options(const BoundedLossOptions& options, int ranks) {
  if (!(options.p >= 0 && options.p <= kMostLoss))
    refuse("bounded loss: p = {}: expected 0 to {}", options.p, kMostLoss);
  if (const std::string why = complaint_about(parts_of(options), "p_sender", "p_call"); !why.empty())
    refuse("bounded loss: {}", why);
  if (options.packet_bytes != 0 &&
      (options.packet_bytes < kLeastPacketBytes || options.packet_bytes > wire::kMaxDatagramPayload))
    refuse("bounded loss: packets of {} bytes: expected {} to {}", options.packet_bytes, kLeastPacketBytes,
           wire::kMaxDatagramPayload);
  check_classes(options.classes);
  check_servers(options, ranks);
}

void check_size(const char* what, std::size_t count, DataType type) {
  if (count > protocol::kMostBoundedBytes / size_of(type))
    refuse("{} of {} elements: expected at most {} bytes", what, count, protocol::kMostBoundedBytes);
}

void check_priority(const char* what, int priority) {
  if (priority < 0 || priority >= protocol::kPriorities)
    refuse("{}: priority {}: expected 0 to {}", what, priority, protocol::kPriorities - 1);
}

void check_summable(const char* what, DataType type) {
  if (type != DataType::f16 && type != DataType::bf16 && type != DataType::f32 && type != DataType::f64)
    refuse("{} of {}: expected f16, bf16, f32 or f64, of which a part may be missing", what,
           talweg::name(type));
}

void check_sum(const char* what, const BoundedCall& call, LossPolicy policy, BoundedPart part, bool adds) {
  check_summable(what, call.type);
  if (call.reduction != ReduceOp::sum && call.reduction != ReduceOp::avg)
    refuse("{} with {}: expected sum or avg, in which what is missing is zero", what,
           talweg::name(call.reduction));
  if (policy == LossPolicy::rescale && call.reduction != ReduceOp::avg)
    refuse("{} with {} and policy rescale: expected avg", what, talweg::name(call.reduction));
  if (policy == LossPolicy::rescale && call.residual != nullptr)
    refuse("{} with policy rescale and a residual: what is lost would count twice", what);
  if (adds)
    check_given(what, "input", call.in, call.count);
  else if (call.in != nullptr || call.residual != nullptr)
    refuse("{}: the {} of a dedicated server is in no sum: expected null", what,
           call.in != nullptr ? "input" : "residual");
  check_given(what, "output", call.out, part.count);
  check_part(what, call, call.in, call.out, part);
  const std::size_t bytes = call.count * size_of(call.type);
  if (overlap(call.residual, bytes, call.in, bytes) ||
      overlap(call.residual, bytes, call.out, part.count * size_of(call.type)))
    refuse("{}: the residual overlaps with the input or the output", what);
  if (!(call.depth >= 0 && call.depth <= 1))
    refuse("{}: a depth of {} in the model: expected 0 to 1", what, call.depth);
  std::size_t in_layers = 0;
  for (const std::size_t layer : call.layers) {
    if (layer > call.count)  // together such ones could come around to the right sum
      refuse("{}: a layer of {} elements, of {}", what, layer, call.count);
    in_layers += layer;
  }
  if (!call.layers.empty() && in_layers != call.count)
    refuse("{}: layers of {} elements together, of {}", what, in_layers, call.count);
}

void check_pull(const char* what, const BoundedCall& call, BoundedPart part) {
  check_given(what, "input", call.in, part.count);
  check_given(what, "output", call.out, call.count);
  check_part(what, call, call.out, call.in, part);
}

}  // namespace talweg::group
