// The C face of sums of which a part may be lost: each function calls the same one of talweg::BoundedSums.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "face.h"
#include "talweg/bounded_loss.h"
#include "talweg/talweg.h"

struct talweg_bounded {
  std::shared_ptr<talweg::BoundedSums> sums;
};

namespace {

using talweg::BoundedCall;
using talweg::BoundedLossOptions;
using talweg::BoundedSums;
using talweg::Error;
using talweg::ErrorCode;
using talweg::LossPolicy;
using talweg::LossReport;
using talweg::c_face::guarded;
using talweg::c_face::op_of;
using talweg::c_face::refuse;
using talweg::c_face::type_of;

static_assert(static_cast<int>(LossPolicy::zero) == TALWEG_LOSS_ZERO);
static_assert(static_cast<int>(LossPolicy::rescale) == TALWEG_LOSS_RESCALE);

BoundedLossOptions options_of(const talweg_bounded_options* options) {
  BoundedLossOptions made;
  if (!options) return made;
  if (options->policy != TALWEG_LOSS_ZERO && options->policy != TALWEG_LOSS_RESCALE)
    refuse("the policy is none of talweg_loss_policy");
  if (!options->servers && options->server_count > 0) refuse("the list of servers is NULL");
  made.p = options->p;
  if (options->p_sender != 0) made.p_sender = options->p_sender;
  if (options->p_call != 0) made.p_call = options->p_call;
  made.policy = static_cast<LossPolicy>(options->policy);
  made.packet_bytes = options->packet_bytes;
  made.classes = {options->droppable_front, options->droppable_back, options->keep_important != 0,
                  options->queues == 0 ? 1 : options->queues, options->back_first != 0};
  made.servers.assign(options->servers, options->servers + options->server_count);
  made.dedicated = options->dedicated != 0;
  return made;
}

BoundedSums& checked(const talweg_bounded* handle) {
  if (!handle) refuse("the bounded sums are NULL");
  return *handle->sums;
}

// What is wrong with what C gives is for all ranks to hear, which may be in the call already: `tell` makes
// one in its place that these sums refuse, as they do what they find wrong themselves.
template <typename Take, typename Tell>
void take_or_tell(const Take& take, const Tell& tell) {
  try {
    take();
  } catch (const Error&) {
    try {
      tell();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::invalid_argument) throw;  // the others have not heard of it
    }
    throw;
  }
}

talweg_loss_report report_of(const LossReport& report) {
  return {report.sent_bytes,    report.lost_bytes,    report.lost_important_bytes,
          report.packets_again, report.exact ? 1 : 0, report.by_switch ? 1 : 0,
          report.seconds};
}

using Half = LossReport (BoundedSums::*)(const BoundedCall& call);

talweg_status sum_up(Half half, talweg_bounded* handle, BoundedCall call, talweg_type type, talweg_op op,
                     const talweg_bounded_call_options* options, talweg_loss_report* report) {
  if (report) *report = {};
  return guarded([&] {
    BoundedSums& sums = checked(handle);
    take_or_tell(
        [&] {
          if (options) {
            call.timeout = std::chrono::milliseconds(options->timeout_ms);
            call.priority = options->priority;
            call.depth = options->depth;
            if (!options->layers && options->layer_count > 0) refuse("the list of layers is NULL");
            if (options->layers) call.layers = {options->layers, options->layer_count};
          }
          call.type = type_of(type);
          call.reduction = op_of(op);
        },
        [&] { (sums.*half)({.type = talweg::DataType::u8, .timeout = call.timeout}); });
    const LossReport done = (sums.*half)(call);
    if (report) *report = report_of(done);
    if (!options) return;
    // Without layers all is one layer's here, and the caller has room for none.
    if (options->lost_of_layer)
      std::copy_n(done.lost_of_layer.begin(), call.layers.size(), options->lost_of_layer);
    if (options->lost_of_sender) std::ranges::copy(done.lost_of_sender, options->lost_of_sender);
  });
}

}  // namespace

talweg_status talweg_bounded_make(talweg_group* group, const talweg_bounded_options* options,
                                  talweg_bounded** sums) {
  if (sums) *sums = nullptr;
  return guarded([&] {
    talweg::Group& whole = talweg::c_face::checked(group);
    if (!sums) refuse("there is nowhere to put the bounded sums: it is NULL");
    auto made = std::make_unique<talweg_bounded>();
    made->sums = BoundedSums::make(whole, options_of(options));
    *sums = made.release();
  });
}

void talweg_bounded_free(talweg_bounded* sums) {
  delete sums;
}

talweg_status talweg_bounded_all_reduce(talweg_bounded* sums, const void* in, void* out, size_t count,
                                        talweg_type type, talweg_op op, void* residual,
                                        const talweg_bounded_call_options* options,
                                        talweg_loss_report* report) {
  return sum_up(&BoundedSums::all_reduce, sums, {.in = in, .out = out, .count = count, .residual = residual},
                type, op, options, report);
}

talweg_status talweg_bounded_push(talweg_bounded* sums, const void* in, void* part, size_t count,
                                  talweg_type type, talweg_op op, void* residual,
                                  const talweg_bounded_call_options* options, talweg_loss_report* report) {
  return sum_up(&BoundedSums::push, sums, {.in = in, .out = part, .count = count, .residual = residual}, type,
                op, options, report);
}

talweg_status talweg_bounded_pull(talweg_bounded* sums, const void* part, void* out, size_t count,
                                  talweg_type type, const talweg_call_options* options) {
  return guarded([&] {
    BoundedSums& made = checked(sums);
    const talweg::CallOptions of_call = talweg::c_face::options_of(options);
    talweg::PullCall call{
        .in = part, .out = out, .count = count, .timeout = of_call.timeout, .priority = of_call.priority};
    take_or_tell([&] { call.type = type_of(type); },
                 [&] { made.pull({.out = nullptr, .count = 1, .timeout = call.timeout}); });
    made.pull(call);
  });
}

talweg_status talweg_bounded_part(const talweg_bounded* sums, int rank, size_t count, size_t* first,
                                  size_t* elements) {
  if (first) *first = 0;
  if (elements) *elements = 0;
  return guarded([&] {
    const talweg::BoundedPart part = checked(sums).part_of(rank, count);
    if (first) *first = part.first;
    if (elements) *elements = part.count;
  });
}

size_t talweg_bounded_explain(const talweg_bounded* sums, size_t count, talweg_type type, char* text,
                              size_t capacity) {
  std::string whole;
  guarded([&] { whole = checked(sums).explain(count, type_of(type)); });
  return talweg::c_face::copy_text(whole, text, capacity);
}
