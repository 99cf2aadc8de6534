// Sends, receives, and the barrier that is made of them.
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "backend.h"
#include "types.h"

namespace talweg::torch_face {
namespace {

// Users' tags are ints from zero up.
constexpr std::uint32_t kMonitoredBarrierTag = 0x8000'0000U;

std::uint32_t tag_of(int tag) {
  check_value(tag >= 0, "talweg: tags are not negative, got ", tag);
  return static_cast<std::uint32_t>(tag);
}

}  // namespace

TalwegBackend::TorchWork TalwegBackend::send(Tensors& tensors, int destination, int tag) {
  the_only("send", tensors);
  const auto data = std::make_shared<Flat>("send", tensors);
  const auto type = moved_type("send", data->type());
  const auto wire_tag = tag_of(tag);
  return run({c10d::OpType::SEND, "talweg:send", tensors, {}}, c10d::kUnsetTimeout, {data}, {},
             {[=](Group& g, const CallOptions& o) {
               return g.start_send(data->data(), data->count(), type, destination, wire_tag, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::recv_from(const char* title, c10d::OpType type, Tensors& tensors,
                                                  int source, int tag) {
  the_only("recv", tensors);
  const auto data = std::make_shared<Flat>("recv", tensors);
  const auto data_type = moved_type("recv", data->type());
  const auto wire_tag = tag_of(tag);
  return run({type, title, tensors, tensors}, c10d::kUnsetTimeout, {}, {data},
             {[=](Group& g, const CallOptions& o) {
               return g.start_recv(data->data(), data->count(), data_type, source, wire_tag, o);
             }});
}

TalwegBackend::TorchWork TalwegBackend::recv(Tensors& tensors, int source, int tag) {
  return recv_from("talweg:recv", c10d::OpType::RECV, tensors, source, tag);
}

TalwegBackend::TorchWork TalwegBackend::recvAnysource(Tensors& tensors, int tag) {
  return recv_from("talweg:recvAnySource", c10d::OpType::RECVANYSOURCE, tensors, kAnyRank, tag);
}

void TalwegBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto group = this->group();
  CallOptions call;
  if (options.timeout == c10d::kUnsetTimeout) {
    const std::lock_guard lock(mutex_);
    call.timeout = timeout_;
  } else {
    TORCH_CHECK_WITH(DistBackendError, rank_ != 0 || options.timeout > kNoTimeout,
                     "[Rank 0]: Rank 0 timed out in monitoredBarrier after ", options.timeout.count(), " ms");
    // Zero would mean the group's own deadline.
    call.timeout = std::max(options.timeout, std::chrono::milliseconds(1));
  }
  const char token = 1;
  char answer = 0;
  if (rank_ != 0) {
    try {
      group->send(&token, 1, DataType::u8, 0, kMonitoredBarrierTag, call);
      group->recv(&answer, 1, DataType::u8, 0, kMonitoredBarrierTag, call);
    } catch (const Error& e) {
      TORCH_CHECK_WITH(
          DistBackendError, false, "Rank ", rank_,
          " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
          "rank 0: ",
          e.what());
    }
    return;
  }
  std::vector<char> arrived(size_, 0);
  std::vector<WorkPtr> works;
  for (int rank = 1; rank < size_; ++rank)
    works.push_back(group->start_recv(&arrived[rank], 1, DataType::u8, rank, kMonitoredBarrierTag, call));
  std::string missing;
  std::size_t missing_ranks = 0;
  for (int rank = 1; rank < size_; ++rank) {
    try {
      works[rank - 1]->wait();
    } catch (const Error&) {
      // The first is named; the waits for the others end at the same deadline, so naming all costs no time.
      if (missing_ranks++ == 0 || wait_all_ranks)
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  TORCH_CHECK_WITH(DistBackendError, missing.empty(),
                   "[Rank 0]: ", missing_ranks > 1 && wait_all_ranks ? "Ranks " : "Rank ", missing,
                   " failed to pass monitoredBarrier in ", call.timeout.count(), " ms");
  for (int rank = 1; rank < size_; ++rank)
    with_torch_errors([&] { group->send(&token, 1, DataType::u8, rank, kMonitoredBarrierTag, call); });
}

}  // namespace talweg::torch_face
