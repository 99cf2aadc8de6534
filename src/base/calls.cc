// The named functions of talweg/group.h: each fills in a Call.
#include "talweg/group.h"

namespace talweg {

namespace {

CallOptions waiting(CallOptions options) {
  options.will_wait = true;
  return options;
}

Call call_of(Collective op, DataType type, const void* in, void* out, const CallOptions& options) {
  return {.op = op, .type = type, .in = in, .out = out, .options = options};
}

}  // namespace

WorkPtr Group::start_all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                                const CallOptions& o) {
  Call call = call_of(Collective::all_reduce, type, in, out, o);
  call.reduction = op;
  call.count = count;
  return start(call);
}
WorkPtr Group::start_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                            int root, const CallOptions& o) {
  Call call = call_of(Collective::reduce, type, in, out, o);
  call.reduction = op;
  call.count = count;
  call.root = root;
  return start(call);
}
WorkPtr Group::start_broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& o) {
  return start(
      {.op = Collective::broadcast, .type = type, .out = data, .count = count, .root = root, .options = o});
}
WorkPtr Group::start_reduce_scatter(const void* in, void* out, std::span<const std::size_t> counts,
                                    DataType type, ReduceOp op, const CallOptions& o) {
  Call call = call_of(Collective::reduce_scatter, type, in, out, o);
  call.reduction = op;
  call.counts = counts;
  return start(call);
}
WorkPtr Group::start_all_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                                const CallOptions& o) {
  return start(
      {.op = Collective::all_gather, .type = type, .in = in, .out = out, .counts = counts, .options = o});
}
WorkPtr Group::start_all_to_all(const void* in, std::span<const std::size_t> in_counts, void* out,
                                std::span<const std::size_t> out_counts, DataType type,
                                const CallOptions& o) {
  Call call = call_of(Collective::all_to_all, type, in, out, o);
  call.counts = in_counts;
  call.out_counts = out_counts;
  return start(call);
}
WorkPtr Group::start_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                            int root, const CallOptions& o) {
  Call call = call_of(Collective::gather, type, in, out, o);
  call.counts = counts;
  call.root = root;
  return start(call);
}
WorkPtr Group::start_scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                             int root, const CallOptions& o) {
  Call call = call_of(Collective::scatter, type, in, out, o);
  call.counts = counts;
  call.root = root;
  return start(call);
}
WorkPtr Group::start_send(const void* data, std::size_t count, DataType type, int destination,
                          std::uint32_t tag, const CallOptions& o) {
  Call call = call_of(Collective::send_recv, type, data, nullptr, o);
  call.count = count;
  call.root = rank();
  call.peer = destination;
  call.tag = tag;
  return start(call);
}
WorkPtr Group::start_recv(void* data, std::size_t count, DataType type, int source, std::uint32_t tag,
                          const CallOptions& o) {
  Call call = call_of(Collective::send_recv, type, nullptr, data, o);
  call.count = count;
  call.root = source;
  call.peer = rank();
  call.tag = tag;
  return start(call);
}
WorkPtr Group::start_barrier(const CallOptions& o) {
  return start({.op = Collective::barrier, .options = o});
}

void Group::all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                       const CallOptions& o) {
  start_all_reduce(in, out, count, type, op, waiting(o))->wait();
}
void Group::reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op, int root,
                   const CallOptions& o) {
  start_reduce(in, out, count, type, op, root, waiting(o))->wait();
}
void Group::broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& o) {
  start_broadcast(data, count, type, root, waiting(o))->wait();
}
void Group::reduce_scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                           ReduceOp op, const CallOptions& o) {
  start_reduce_scatter(in, out, counts, type, op, waiting(o))->wait();
}
void Group::all_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                       const CallOptions& o) {
  start_all_gather(in, out, counts, type, waiting(o))->wait();
}
void Group::all_to_all(const void* in, std::span<const std::size_t> in_counts, void* out,
                       std::span<const std::size_t> out_counts, DataType type, const CallOptions& o) {
  start_all_to_all(in, in_counts, out, out_counts, type, waiting(o))->wait();
}
void Group::gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type, int root,
                   const CallOptions& o) {
  start_gather(in, out, counts, type, root, waiting(o))->wait();
}
void Group::scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType type, int root,
                    const CallOptions& o) {
  start_scatter(in, out, counts, type, root, waiting(o))->wait();
}
void Group::send(const void* data, std::size_t count, DataType type, int destination, std::uint32_t tag,
                 const CallOptions& o) {
  start_send(data, count, type, destination, tag, waiting(o))->wait();
}
void Group::recv(void* data, std::size_t count, DataType type, int source, std::uint32_t tag,
                 const CallOptions& o) {
  start_recv(data, count, type, source, tag, waiting(o))->wait();
}
void Group::barrier(const CallOptions& o) {
  start_barrier(waiting(o))->wait();
}

}  // namespace talweg
