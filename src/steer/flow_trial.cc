#include "steer/flow_trial.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "wire/frame.h"

namespace talweg::steer {
namespace {

constexpr std::uint32_t kTag = 0x7A1E'0001;
// Senders go on for a little after the time in which receivers count, so that nobody counts alone.
constexpr double kAfter = 1.1;
constexpr auto kLook = std::chrono::milliseconds(1);
// When the last message of a flow is decided on, what it has in flight and what ends it take at least as long
// as so many of its windows did.
constexpr double kWindowsLeft = 2;
// A message is announced by one header and begins with another.
constexpr double kAroundMessage = 2 * sizeof(wire::Header);

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(FlowTrial::Clock::now().time_since_epoch())
      .count();
}

std::vector<std::byte> end_mark() {
  std::vector<std::byte> data(MessageSizes::kMost);
  data[0] = std::byte{1};
  return data;
}

}  // namespace

FlowTrial::FlowTrial(Group& group, const std::vector<RankFlow>& flows, std::chrono::nanoseconds duration)
    : group_(group),
      flows_(flows.size()),
      duration_(duration),
      zeros_(MessageSizes::kMost),
      last_(end_mark()) {
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const RankFlow& flow = flows[f];
    if (flow.to == group.rank()) in_.emplace_back(f, flow);
    if (flow.from == group.rank()) out_.emplace_back(flow);
  }
}

FlowTrial::Posted FlowTrial::watched(WorkPtr work) {
  Posted posted{std::move(work), std::make_shared<std::atomic<std::int64_t>>(0)};
  posted.work->on_done([stamp = posted.done_ns] { stamp->store(now_ns(), std::memory_order_release); });
  return posted;
}

void FlowTrial::post(Incoming& in, std::size_t slot) {
  std::vector<std::byte>& buffer = in.buffers[slot];
  buffer.resize(in.sizes.next());  // never smaller than before
  in.posted.push_back(
      watched(group_.start_recv(buffer.data(), buffer.size(), DataType::u8, in.what.from, kTag)));
  in.posted.back().bytes = buffer.size();
  in.posted.back().slot = slot;
}

void FlowTrial::post(Outgoing& out, bool last) {
  const std::size_t bytes = out.sizes.next();
  const std::vector<std::byte>& data = last ? last_ : zeros_;
  out.posted.push_back(watched(group_.start_send(data.data(), bytes, DataType::u8, out.what.to, kTag)));
  out.bytes += static_cast<std::int64_t>(bytes);
  bytes_sent_ += static_cast<std::int64_t>(bytes);
}

double FlowTrial::seconds_since_start(std::int64_t ns) const {
  return std::chrono::duration<double>(std::chrono::nanoseconds(ns) - start_.time_since_epoch()).count();
}

double FlowTrial::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

// The receives that are posted when the last message comes are for those that follow it, sent for that.
void FlowTrial::receive(Incoming& in) {
  while (!in.posted.empty()) {
    const std::int64_t done_ns = in.posted.front().done_ns->load(std::memory_order_acquire);
    if (done_ns == 0) return;
    in.posted.front().work->wait();  // throws what went wrong
    const auto [slot, bytes] = std::pair(in.posted.front().slot, in.posted.front().bytes);
    in.posted.pop_front();
    if (in.last_seen) continue;
    in.arrivals.push_back({seconds_since_start(done_ns), static_cast<double>(bytes) + kAroundMessage});
    in.last_seen = in.buffers[slot][0] != std::byte{0};
    if (!in.last_seen) post(in, slot);
  }
}

bool FlowTrial::may_send(const Outgoing& out) const {
  return out.what.most <= 0 || static_cast<double>(out.bytes) * 8 <= out.what.most * seconds();
}

bool FlowTrial::shall_end(const Outgoing& out) const {
  if (bytes_sent_ > kMostBytes) return true;
  double rest = 0;
  if (out.what.most <= 0 && out.done.size() == kWindow) rest = kWindowsLeft * (seconds() - out.done.front());
  return seconds() + rest > kAfter * duration();
}

void FlowTrial::send(Outgoing& out) {
  while (!out.posted.empty()) {
    const std::int64_t done_ns = out.posted.front().done_ns->load(std::memory_order_acquire);
    if (done_ns == 0) break;
    out.posted.front().work->wait();
    out.posted.pop_front();
    out.done.push_back(seconds_since_start(done_ns));
    if (out.done.size() > kWindow) out.done.pop_front();
  }
  while (!out.ended && out.posted.size() < kWindow) {
    out.ended = shall_end(out);
    if (!out.ended && !may_send(out)) return;
    if (!out.ended) {
      post(out, false);
    } else {
      for (std::size_t i = 0; i < kWindow; ++i) post(out, true);
    }
  }
}

void FlowTrial::exchange() {
  for (Incoming& in : in_)
    for (std::size_t slot = 0; slot < kWindow; ++slot) post(in, slot);
  // All begin together. A barrier would wait for the receives, whose messages are sent behind it.
  std::uint8_t ready = 0;
  group_.all_reduce(&ready, &ready, 1, DataType::u8, ReduceOp::max);
  start_ = Clock::now();
  for (std::size_t turn = 0;; ++turn) {
    std::vector<Work*> open;
    bool ended = true;
    for (Incoming& in : in_) {
      receive(in);
      if (!in.posted.empty()) open.push_back(in.posted.front().work.get());
    }
    for (Outgoing& out : out_) {
      send(out);
      ended = ended && out.ended;
      if (!out.posted.empty()) open.push_back(out.posted.front().work.get());
    }
    if (ended && open.empty()) return;
    if (open.empty()) {
      std::this_thread::sleep_for(kLook);
    } else {
      open[turn % open.size()]->wait_for(kLook);
    }
  }
}

std::vector<double> FlowTrial::run() {
  try {
    exchange();
  } catch (const std::exception& error) {
    // Calls in flight read and write the buffers here.
    group_.abort(std::string("a measurement of the network failed: ") + error.what());
    wait_for_all();
    throw;
  }
  std::vector<double> rates(flows_);
  for (const Incoming& in : in_) rates[in.flow] = steady_rate(in.arrivals, duration());
  return rates;
}

void FlowTrial::wait_for_all() {
  const auto settle = [](std::deque<Posted>& posted) {
    for (Posted& p : posted)
      while (!p.work->test()) std::this_thread::sleep_for(kLook);
  };
  for (Incoming& in : in_) settle(in.posted);
  for (Outgoing& out : out_) settle(out.posted);
}

}  // namespace talweg::steer
