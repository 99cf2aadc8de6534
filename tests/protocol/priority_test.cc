// What is more urgent leaves first: from a call's options to the frames of a session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "memory_network.h"
#include "protocol/operation.h"
#include "protocol/send_queue.h"

namespace talweg::protocol {
namespace {

// What a session sends, as a link would send it.
struct Queued : Outbox {
  struct Frame {
    wire::Header header;
    Token token;
    int priority = 0;
    bool reported = false;
  };
  bool send(int, const wire::Header& header, const std::byte*, const Token& token, int priority,
            bool) override {
    queue.push({header, token, priority, !token.data});
    return !token.data;
  }
  void send_text(int, const wire::Header&, const std::string&) override {}
  void cancel(std::uint64_t) override {}
  void look_at(std::int64_t) override {}
  void completed(void*, const Outcome&) override {}
  SendQueue<Frame> queue;
};

TEST(Priority, DataOfACallOvertakeThoseOfALessUrgentOneThatWasCalledBefore) {
  const forest::Request request = forest::even_request(Collective::broadcast, 2, 0, 100, 4);
  MemoryNetwork net(2, 1);
  std::vector<std::int32_t> data(100);
  Queued outbox;
  BufferPool pool;
  Session session(ranks_only(0, {"h0", "h1"}), 1, outbox, pool, {});
  for (const int priority : {1, 2}) {
    Operation operation = make_operation(
        {.op = request.op, .type = DataType::i32, .out = data.data(), .options = {.priority = priority}}, 0,
        request);
    operation.plan = net.plan(request, "direct", 0, 10);
    operation.deadline_ns = 1'000'000'000;
    const wire::Signature signature = operation.signature;
    const std::uint64_t call = session.start(std::move(operation));
    session.on_frame(1, encode(wire::CallId{1, call, signature}, wire::Announce{}), nullptr);
  }
  std::vector<std::uint64_t> order;
  while (!outbox.queue.empty()) {
    const Queued::Frame frame = outbox.queue.pop();
    if (!wire::is_chunk(frame.header)) continue;
    order.push_back(frame.header.sequence);
    session.on_sent(frame.token);
  }
  ASSERT_THAT(order, ::testing::Contains(0).Times(::testing::Ge(3)));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), std::greater())) << "call 1 goes first";
  EXPECT_GE(std::count(order.begin(), order.end(), 1U), 3);
}

}  // namespace
}  // namespace talweg::protocol
