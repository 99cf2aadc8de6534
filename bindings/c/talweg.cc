// The C face: each function calls the same one of talweg::Group and turns an exception into a status and a
// message.
#include "talweg/talweg.h"

#include <exception>
#include <memory>
#include <span>
#include <string>

#include "face.h"
#include "talweg/group.h"

struct talweg_work {
  talweg::WorkPtr work;
};

namespace {

using talweg::CallOptions;
using talweg::DataType;
using talweg::ErrorCode;
using talweg::Group;
using talweg::ReduceOp;
using talweg::WorkPtr;
using talweg::c_face::checked;
using talweg::c_face::copy_text;
using talweg::c_face::guarded;
using talweg::c_face::op_of;
using talweg::c_face::options_of;
using talweg::c_face::refuse;
using talweg::c_face::type_of;

static_assert(static_cast<int>(DataType::boolean) == TALWEG_BOOLEAN && TALWEG_TYPES == talweg::kDataTypes);
static_assert(static_cast<int>(ReduceOp::avg) == TALWEG_AVG && TALWEG_AVG + 1 == talweg::kReduceOps);
static_assert(TALWEG_ANY_RANK == talweg::kAnyRank);

std::span<const std::size_t> counts_of(const Group& group, const size_t* counts) {
  if (!counts) refuse("counts is NULL: it has one number for each rank");
  return {counts, static_cast<std::size_t>(group.size())};
}

// `start(group, options)` returns the work.
template <typename Start>
talweg_status in_flight(talweg_group* handle, const talweg_call_options* options, talweg_work** work,
                        const Start& start) {
  if (work) *work = nullptr;
  return guarded([&] {
    Group& group = checked(handle);
    if (!work) refuse("there is nowhere to put the work: it is NULL");
    auto started = std::make_unique<talweg_work>();
    started->work = start(group, options_of(options));
    *work = started.release();
  });
}

// The work that is done, for who wants to ask it something.
template <typename Start>
talweg_status blocking(talweg_group* handle, const Start& start, WorkPtr* done = nullptr) {
  return guarded([&] {
    CallOptions options;
    options.will_wait = true;
    const WorkPtr work = start(checked(handle), options);
    work->wait();
    if (done) *done = work;
  });
}

std::string text_of(const char* text) {
  return text ? text : "";
}

// One for each call, so that its blocking and its starting form are the same call.

auto all_reduce(const void* in, void* out, size_t count, talweg_type type, talweg_op op) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_all_reduce(in, out, count, type_of(type), op_of(op), o);
  };
}
auto reduce(const void* in, void* out, size_t count, talweg_type type, talweg_op op, int root) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_reduce(in, out, count, type_of(type), op_of(op), root, o);
  };
}
auto broadcast(void* data, size_t count, talweg_type type, int root) {
  return
      [=](Group& g, const CallOptions& o) { return g.start_broadcast(data, count, type_of(type), root, o); };
}
auto reduce_scatter(const void* in, void* out, const size_t* counts, talweg_type type, talweg_op op) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_reduce_scatter(in, out, counts_of(g, counts), type_of(type), op_of(op), o);
  };
}
auto all_gather(const void* in, void* out, const size_t* counts, talweg_type type) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_all_gather(in, out, counts_of(g, counts), type_of(type), o);
  };
}
auto all_to_all(const void* in, const size_t* in_counts, void* out, const size_t* out_counts,
                talweg_type type) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_all_to_all(in, counts_of(g, in_counts), out, counts_of(g, out_counts), type_of(type), o);
  };
}
auto gather(const void* in, void* out, const size_t* counts, talweg_type type, int root) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_gather(in, out, counts_of(g, counts), type_of(type), root, o);
  };
}
auto scatter(const void* in, void* out, const size_t* counts, talweg_type type, int root) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_scatter(in, out, counts_of(g, counts), type_of(type), root, o);
  };
}
auto send(const void* data, size_t count, talweg_type type, int destination, uint32_t tag) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_send(data, count, type_of(type), destination, tag, o);
  };
}
auto recv(void* data, size_t count, talweg_type type, int source, uint32_t tag) {
  return [=](Group& g, const CallOptions& o) {
    return g.start_recv(data, count, type_of(type), source, tag, o);
  };
}
auto barrier() {
  return [](Group& g, const CallOptions& o) { return g.start_barrier(o); };
}

}  // namespace

const char* talweg_version(void) {
  return TALWEG_VERSION_TEXT;
}

const char* talweg_status_name(talweg_status status) {
  if (status == TALWEG_OK) return "ok";
  return static_cast<unsigned>(status) > TALWEG_CORRUPTED ? "unknown"
                                                          : talweg::name(static_cast<ErrorCode>(status - 1));
}

const char* talweg_error_message(void) {
  return talweg::c_face::last_message();
}

size_t talweg_size_of(talweg_type type) {
  return type < 0 || type >= talweg::kDataTypes ? 0 : talweg::size_of(static_cast<DataType>(type));
}

talweg_status talweg_join(const talweg_join_options* options, talweg_group** group) {
  if (group) *group = nullptr;
  return guarded([&] {
    if (!group) refuse("there is nowhere to put the group: it is NULL");
    talweg::GroupOptions join;
    if (options) {
      if (options->size > 0) {
        join.rank = options->rank;
        join.size = options->size;
      }
      join.rendezvous = text_of(options->rendezvous);
      join.prefix = text_of(options->prefix);
      join.timeout = std::chrono::milliseconds(options->timeout_ms);
      join.interface = text_of(options->interface);
      join.cluster_file = text_of(options->cluster);
      join.algorithm = text_of(options->algorithm);
      join.switch_address = text_of(options->switch_address);
      join.switch_key_file = text_of(options->switch_key_file);
    }
    auto joined = std::make_unique<talweg_group>();
    joined->group = Group::join(join);
    *group = joined.release();
  });
}

void talweg_leave(talweg_group* group) {
  delete group;
}

talweg_status talweg_abort(talweg_group* group, const char* why) {
  return guarded([&] { checked(group).abort(text_of(why)); });
}

talweg_status talweg_split(talweg_group* group, const int* ranks, size_t count, talweg_group** sub) {
  if (sub) *sub = nullptr;
  return guarded([&] {
    Group& whole = checked(group);
    if (!sub) refuse("there is nowhere to put the group: it is NULL");
    if (!ranks && count > 0) refuse("the list of ranks is NULL");
    auto part = std::make_unique<talweg_group>();
    part->group = whole.split({ranks, count});
    if (part->group) *sub = part.release();
  });
}

talweg_status talweg_set_timeout(talweg_group* group, int64_t timeout_ms) {
  return guarded([&] {
    if (timeout_ms < 1) refuse("the timeout is less than 1 ms");
    checked(group).set_timeout(std::chrono::milliseconds(timeout_ms));
  });
}

int talweg_rank(const talweg_group* group) {
  return group ? group->group->rank() : -1;
}

int talweg_size(const talweg_group* group) {
  return group ? group->group->size() : -1;
}

size_t talweg_describe(const talweg_group* group, char* text, size_t capacity) {
  std::string whole;
  guarded([&] { whole = checked(group).describe(); });
  return copy_text(whole, text, capacity);
}

talweg_status talweg_all_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                talweg_type type, talweg_op op) {
  return blocking(group, all_reduce(in, out, count, type, op));
}
talweg_status talweg_start_all_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                      talweg_type type, talweg_op op, const talweg_call_options* options,
                                      talweg_work** work) {
  return in_flight(group, options, work, all_reduce(in, out, count, type, op));
}

talweg_status talweg_reduce(talweg_group* group, const void* in, void* out, size_t count, talweg_type type,
                            talweg_op op, int root) {
  return blocking(group, reduce(in, out, count, type, op, root));
}
talweg_status talweg_start_reduce(talweg_group* group, const void* in, void* out, size_t count,
                                  talweg_type type, talweg_op op, int root,
                                  const talweg_call_options* options, talweg_work** work) {
  return in_flight(group, options, work, reduce(in, out, count, type, op, root));
}

talweg_status talweg_broadcast(talweg_group* group, void* data, size_t count, talweg_type type, int root) {
  return blocking(group, broadcast(data, count, type, root));
}
talweg_status talweg_start_broadcast(talweg_group* group, void* data, size_t count, talweg_type type,
                                     int root, const talweg_call_options* options, talweg_work** work) {
  return in_flight(group, options, work, broadcast(data, count, type, root));
}

talweg_status talweg_reduce_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                                    talweg_type type, talweg_op op) {
  return blocking(group, reduce_scatter(in, out, counts, type, op));
}
talweg_status talweg_start_reduce_scatter(talweg_group* group, const void* in, void* out,
                                          const size_t* counts, talweg_type type, talweg_op op,
                                          const talweg_call_options* options, talweg_work** work) {
  return in_flight(group, options, work, reduce_scatter(in, out, counts, type, op));
}

talweg_status talweg_all_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                talweg_type type) {
  return blocking(group, all_gather(in, out, counts, type));
}
talweg_status talweg_start_all_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                      talweg_type type, const talweg_call_options* options,
                                      talweg_work** work) {
  return in_flight(group, options, work, all_gather(in, out, counts, type));
}

talweg_status talweg_all_to_all(talweg_group* group, const void* in, const size_t* in_counts, void* out,
                                const size_t* out_counts, talweg_type type) {
  return blocking(group, all_to_all(in, in_counts, out, out_counts, type));
}
talweg_status talweg_start_all_to_all(talweg_group* group, const void* in, const size_t* in_counts, void* out,
                                      const size_t* out_counts, talweg_type type,
                                      const talweg_call_options* options, talweg_work** work) {
  return in_flight(group, options, work, all_to_all(in, in_counts, out, out_counts, type));
}

talweg_status talweg_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                            talweg_type type, int root) {
  return blocking(group, gather(in, out, counts, type, root));
}
talweg_status talweg_start_gather(talweg_group* group, const void* in, void* out, const size_t* counts,
                                  talweg_type type, int root, const talweg_call_options* options,
                                  talweg_work** work) {
  return in_flight(group, options, work, gather(in, out, counts, type, root));
}

talweg_status talweg_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                             talweg_type type, int root) {
  return blocking(group, scatter(in, out, counts, type, root));
}
talweg_status talweg_start_scatter(talweg_group* group, const void* in, void* out, const size_t* counts,
                                   talweg_type type, int root, const talweg_call_options* options,
                                   talweg_work** work) {
  return in_flight(group, options, work, scatter(in, out, counts, type, root));
}

talweg_status talweg_send(talweg_group* group, const void* data, size_t count, talweg_type type,
                          int destination, uint32_t tag) {
  return blocking(group, send(data, count, type, destination, tag));
}
talweg_status talweg_start_send(talweg_group* group, const void* data, size_t count, talweg_type type,
                                int destination, uint32_t tag, const talweg_call_options* options,
                                talweg_work** work) {
  return in_flight(group, options, work, send(data, count, type, destination, tag));
}

talweg_status talweg_recv(talweg_group* group, void* data, size_t count, talweg_type type, int source,
                          uint32_t tag, int* from) {
  WorkPtr done;
  const talweg_status status = blocking(group, recv(data, count, type, source, tag), &done);
  if (from) *from = done ? done->source_rank() : -1;
  return status;
}
talweg_status talweg_start_recv(talweg_group* group, void* data, size_t count, talweg_type type, int source,
                                uint32_t tag, const talweg_call_options* options, talweg_work** work) {
  return in_flight(group, options, work, recv(data, count, type, source, tag));
}

talweg_status talweg_barrier(talweg_group* group) {
  return blocking(group, barrier());
}
talweg_status talweg_start_barrier(talweg_group* group, const talweg_call_options* options,
                                   talweg_work** work) {
  return in_flight(group, options, work, barrier());
}

talweg_status talweg_test(talweg_work* work, int* done) {
  if (done) *done = 0;
  return guarded([&] {
    if (!work) refuse("the work is NULL");
    const bool finished = work->work->test();
    if (done) *done = finished ? 1 : 0;
    if (!finished) return;
    if (const auto error = work->work->error()) std::rethrow_exception(error);
  });
}

talweg_status talweg_wait(talweg_work* work) {
  return guarded([&] {
    if (!work) refuse("the work is NULL");
    work->work->wait();
  });
}

uint64_t talweg_work_sequence(const talweg_work* work) {
  return work ? work->work->sequence() : 0;
}

int talweg_work_source(const talweg_work* work) {
  return work ? work->work->source_rank() : -1;
}

void talweg_work_free(talweg_work* work) {
  delete work;
}
