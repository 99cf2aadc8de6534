#include "steer/flow_trial.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace talweg::steer {
namespace {

constexpr std::uint32_t kTag = 0x7A1E'0001;
// Senders go on for a little after the time in which receivers count, so that nobody counts alone.
constexpr double kAfter = 1.1;
constexpr double kSettled = 0.25;  // the part of the time that does not count
constexpr auto kLook = std::chrono::milliseconds(1);

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(FlowTrial::Clock::now().time_since_epoch())
      .count();
}

}  // namespace

FlowTrial::FlowTrial(Group& group, const std::vector<RankFlow>& flows, std::chrono::nanoseconds duration)
    : group_(group), flows_(flows.size()), duration_(duration) {
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const RankFlow& flow = flows[f];
    if (flow.to == group.rank()) {
      Incoming in;
      in.flow = f;
      in.what = flow;
      in.buffer.resize(kWindow * flow.message_bytes);
      in_.push_back(std::move(in));
    }
    if (flow.from == group.rank()) {
      Outgoing out;
      out.what = flow;
      out.data.resize(flow.message_bytes);
      out.last.resize(flow.message_bytes, std::byte{1});
      out_.push_back(std::move(out));
    }
  }
}

FlowTrial::Posted FlowTrial::watched(WorkPtr work) {
  Posted posted{std::move(work), std::make_shared<std::atomic<std::int64_t>>(0), 0};
  posted.work->on_done([stamp = posted.done_ns] { stamp->store(now_ns(), std::memory_order_release); });
  return posted;
}

void FlowTrial::post(Incoming& in, std::size_t slot) {
  const std::size_t bytes = in.what.message_bytes;
  in.posted.push_back(
      watched(group_.start_recv(in.buffer.data() + slot * bytes, bytes, DataType::u8, in.what.from, kTag)));
  in.posted.back().slot = slot;
}

void FlowTrial::post(Outgoing& out, bool last) {
  const std::vector<std::byte>& data = last ? out.last : out.data;
  out.posted.push_back(watched(group_.start_send(data.data(), data.size(), DataType::u8, out.what.to, kTag)));
  bytes_sent_ += static_cast<std::int64_t>(data.size());
}

double FlowTrial::seconds_since_start(std::int64_t ns) const {
  return std::chrono::duration<double>(std::chrono::nanoseconds(ns) - start_.time_since_epoch()).count();
}

// The receives that are posted when the last message comes are for those that follow it, sent for that.
void FlowTrial::receive(Incoming& in) {
  while (!in.posted.empty()) {
    const std::int64_t done_ns = in.posted.front().done_ns->load(std::memory_order_acquire);
    if (done_ns == 0) return;
    in.posted.front().work->wait();  // throws what went wrong
    const std::size_t slot = in.posted.front().slot;
    in.posted.pop_front();
    if (in.last_seen) continue;
    in.arrivals.push_back(seconds_since_start(done_ns));
    in.last_seen = in.buffer[slot * in.what.message_bytes] != std::byte{0};
    if (!in.last_seen) post(in, slot);
  }
}

void FlowTrial::send(Outgoing& out) {
  while (!out.posted.empty()) {
    if (out.posted.front().done_ns->load(std::memory_order_acquire) == 0) return;
    out.posted.front().work->wait();
    out.posted.pop_front();
    if (out.ended) continue;
    out.ended = Clock::now() - start_ > kAfter * duration_ || bytes_sent_ > kMostBytes;
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
  for (Outgoing& out : out_)
    for (std::size_t i = 0; i < kWindow; ++i) post(out, false);
  for (std::size_t turn = 0;; ++turn) {
    std::vector<Work*> open;
    for (Incoming& in : in_) {
      receive(in);
      if (!in.posted.empty()) open.push_back(in.posted.front().work.get());
    }
    for (Outgoing& out : out_) {
      send(out);
      if (!out.posted.empty()) open.push_back(out.posted.front().work.get());
    }
    if (open.empty()) return;
    open[turn % open.size()]->wait_for(kLook);
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
  for (const Incoming& in : in_) rates[in.flow] = rate(in);
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

// Between two arrivals bytes are taken to have come evenly. With several streams messages overtake each
// other.
double FlowTrial::rate(const Incoming& in) const {
  const double end = std::chrono::duration<double>(duration_).count(), begin = kSettled * end;
  std::vector<double> arrivals = in.arrivals;
  std::ranges::sort(arrivals);
  const auto messages_at = [&](double seconds) {
    double before = 0;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      if (arrivals[i] >= seconds) return static_cast<double>(i) + (seconds - before) / (arrivals[i] - before);
      before = arrivals[i];
    }
    return static_cast<double>(arrivals.size());
  };
  const double messages = messages_at(end) - messages_at(begin);
  return messages * static_cast<double>(in.what.message_bytes) * 8 / (end - begin);
}

}  // namespace talweg::steer
