// What rank 0 says of plans: refused with an Error, or read, and then the same after a round trip. What a
// node of a group lets through it can also run: the nodes of a small one end a call by it, and none reads or
// writes where it has nothing.
#include <deque>
#include <memory>
#include <vector>

#include "forest/forest_bytes.h"
#include "fuzz/fuzz.h"
#include "protocol/forest/forest_run.h"
#include "protocol/operation.h"
#include "steer/plan_word.h"
#include "steer/shared_plans.h"

using namespace talweg;

namespace {

constexpr int kRanks = 3;
constexpr int kNodes = 5;
constexpr std::int64_t kMostBytes = 1 << 16;

struct Frame {
  forest::NodeId from = 0;
  wire::Header header;
  std::vector<std::byte> payload;
};

// Frames arrive in the order in which they were sent.
struct Wire : protocol::Actions {
  explicit Wire(std::vector<std::deque<Frame>>& frames) : to(frames) {}
  wire::CallId call(forest::NodeId) const override { return {}; }
  bool send(forest::NodeId node, const wire::Header& header, const Payload& payload) override {
    to.at(static_cast<std::size_t>(node))
        .push_back({self, header, {payload.data, payload.data + header.length}});
    return true;
  }
  void tell(forest::NodeId node, const wire::Header& header) override {
    to.at(static_cast<std::size_t>(node)).push_back({self, header, {}});
  }
  std::uint32_t grant(forest::NodeId, std::uint32_t, std::uint32_t) override { return protocol::kStarted; }

  std::vector<std::deque<Frame>>& to;
  forest::NodeId self = 0;
};

void run(const std::vector<steer::SharedPlan>& plans) {
  const forest::Request& request = plans[0]->forest->request;
  std::int64_t bytes = 0;
  for (const std::int64_t count : request.counts) bytes += count * request.element_size;
  if (bytes > kMostBytes || plans[0]->forest->trees.size() > 256) return;
  protocol::BufferPool pool;
  std::vector<std::deque<Frame>> frames(kNodes);
  std::deque<protocol::ForestRun> runs;
  std::vector<std::vector<std::byte>> in(kNodes), out(kNodes);
  Wire wire(frames);
  for (int node = 0; node < kNodes; ++node) {
    auto& i = in[static_cast<std::size_t>(node)];
    auto& o = out[static_cast<std::size_t>(node)];
    if (node < kRanks) {
      i.resize(static_cast<std::size_t>(forest::input_count(request, node) * request.element_size));
      o.resize(static_cast<std::size_t>(forest::output_count(request, node) * request.element_size));
    }
    runs.emplace_back(pool).reset(
        plans[static_cast<std::size_t>(node)],
        {i.data(), o.data(), DataType::u8, kernel::reduce_function(DataType::u8, ReduceOp::sum), 0});
  }
  for (wire.self = 0; wire.self < kNodes; ++wire.self) runs[static_cast<std::size_t>(wire.self)].begin(wire);
  for (bool any = true; any;) {
    any = false;
    for (wire.self = 0; wire.self < kNodes; ++wire.self)
      for (auto& mine = frames[static_cast<std::size_t>(wire.self)]; !mine.empty(); any = true) {
        const Frame frame = std::move(mine.front());
        mine.pop_front();
        fuzz::require(runs[static_cast<std::size_t>(wire.self)].on_frame(
                          frame.from, frame.header, frame.payload.data(), wire) == nullptr);
      }
  }
  for (auto& node : runs) fuzz::require(node.done());
  fuzz::require(pool.bytes_in_use() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    steer::PlanWord word = steer::word_from_bytes(fuzz::bytes_of(data, size));
    const auto bytes = to_bytes(word);
    fuzz::require(to_bytes(steer::word_from_bytes(bytes)) == bytes);
    word.digest = 0;  // which chance never meets
    std::vector<steer::SharedPlan> plans;
    for (int node = 0; node < kNodes; ++node) {
      steer::SharedPlans shared(node, kRanks, kNodes);
      shared.hear(word);
      if (!word.forest) continue;
      plans.push_back(node < kRanks ? shared.find(word.call, *word.request)
                                    : shared.find(word.call, forest::digest(*word.forest)));
      fuzz::require(plans.back() != nullptr);
    }
    if (!plans.empty()) run(plans);
  });
  return 0;
}
