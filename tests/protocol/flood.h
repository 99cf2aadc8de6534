// Flood: a transfer that is no forest's. Every rank sends all it has to every other one, in frames of its
// own, from buffers that it takes back when they have left. What comes for the first time it takes for lost,
// so that nothing ends without a clock.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/transfer.h"

namespace talweg::protocol {

struct FloodPlan : Plan {
  std::unique_ptr<Transfer> make_transfer(BufferPool& pool) const override;
  std::size_t bytes = 0;             // that each rank has
  std::int64_t pause_ns = 0;         // before a piece is sent again
  std::shared_ptr<int> placed = {};  // counts pieces that were received where they belong
};

class Flood : public Transfer {
 public:
  explicit Flood(BufferPool& pool) : pool_(pool) {}

  void reset(std::shared_ptr<const Plan> plan, const Operands& operands) override {
    plan_ = std::static_pointer_cast<const FloodPlan>(std::move(plan));
    operands_ = operands;
    for (const NodeId rank : plan_->announce_to) peers_.push_back({rank, pool_.acquire(plan_->bytes)});
    own_ = pool_.acquire(plan_->bytes);
    begun_ = summed_ = false;
    wake_ns_ = 0;
  }
  void begin(Actions& actions) override {
    begun_ = true;
    if (plan_->bytes > 0) std::memcpy(own_, operands_.in, plan_->bytes);
    for (Peer& peer : peers_) offer(peer, actions);
    sum_if_all_here();
  }
  void on_ready(NodeId node, Actions& actions) override {
    if (Peer* const peer = find(node); peer != nullptr && !peer->sent) offer(*peer, actions);
  }
  const char* on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                       Actions& actions) override {
    Peer* const peer = find(from);
    const wire::Own own = wire::own_of(header);
    if (peer == nullptr || own.kind > kHave) return "no part of a flood";
    if (own.kind == kHave) {
      peer->has = true;
      return nullptr;
    }
    if (own.bytes != plan_->bytes) return "a piece of a wrong length";
    if (std::exchange(peer->heard, true)) take(*peer, payload, actions);
    return nullptr;
  }
  std::byte* place(NodeId from, const wire::Header& header) const override {
    const wire::Own own = wire::own_of(header);
    for (const Peer& peer : peers_)
      if (peer.rank == from && own.kind == kPiece && own.bytes == plan_->bytes && !peer.here)
        return peer.piece;
    return nullptr;
  }
  void on_sent(std::uint32_t piece, std::byte* buffer, Actions*) override {
    if (plan_->bytes > 0) std::memset(buffer, 0xee, plan_->bytes);
    pool_.release(buffer, plan_->bytes);
    peers_[piece].on_way = false;
  }
  void on_time(std::int64_t now_ns, Actions& actions) override {
    const bool again = std::exchange(wake_ns_, now_ns + plan_->pause_ns) > 0;
    for (Peer& peer : peers_)
      if (again) offer(peer, actions);
  }
  std::int64_t next_time_ns() const override {
    const bool all = std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.has; });
    return all ? std::numeric_limits<std::int64_t>::max() : wake_ns_;
  }
  bool done() override {
    const auto over = [](const Peer& peer) { return peer.here && peer.has && !peer.on_way; };
    return begun_ && std::all_of(peers_.begin(), peers_.end(), over);
  }
  std::vector<NodeId> waiting_for() const override {
    std::vector<NodeId> nodes;
    for (const Peer& peer : peers_)
      if (!peer.here || !peer.has) nodes.push_back(peer.rank);
    return nodes;
  }
  bool depends_on(NodeId node) const override {
    const std::vector<NodeId> nodes = waiting_for();
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }
  void release() override {
    for (const Peer& peer : peers_) pool_.release(peer.piece, plan_->bytes);
    peers_.clear();
    if (own_ != nullptr) pool_.release(std::exchange(own_, nullptr), plan_->bytes);
  }

 private:
  static constexpr std::uint32_t kPiece = 0, kHave = 1;
  struct Peer {
    NodeId rank = 0;
    std::byte* piece = nullptr;
    bool sent = false, on_way = false, has = false;  // of ours
    bool heard = false, here = false;                // of its own
  };
  Peer* find(NodeId node) {
    const auto peer =
        std::find_if(peers_.begin(), peers_.end(), [=](const Peer& p) { return p.rank == node; });
    return peer == peers_.end() ? nullptr : &*peer;
  }
  void offer(Peer& peer, Actions& actions) {
    const auto bytes = static_cast<std::uint32_t>(plan_->bytes);
    if (peer.has || peer.on_way || actions.grant(peer.rank, bytes, 1) == 0) return;
    const auto number = static_cast<std::uint32_t>(&peer - peers_.data());
    std::byte* const copy = pool_.acquire(bytes);
    if (bytes > 0) std::memcpy(copy, own_, bytes);
    peer.sent = peer.on_way = true;
    if (actions.send(peer.rank, encode(actions.call(peer.rank), wire::Own{kPiece, 0, 0, bytes}),
                     {copy, false, number, copy, 0}))
      on_sent(number, copy, &actions);
  }
  void take(Peer& peer, const std::byte* payload, Actions& actions) {
    if (payload == peer.piece && plan_->placed) ++*plan_->placed;
    if (!peer.here && payload != peer.piece && plan_->bytes > 0)
      std::memcpy(peer.piece, payload, plan_->bytes);
    peer.here = true;
    actions.tell(peer.rank, encode(actions.call(peer.rank), wire::Own{kHave, 0, 0, 0}));
    sum_if_all_here();
  }
  // In the order of the ranks.
  void sum_if_all_here() {
    if (summed_ || !std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.here; })) return;
    summed_ = true;
    if (plan_->bytes == 0) return;
    const std::size_t count = plan_->bytes / size_of(operands_.type);
    for (NodeId rank = 0; rank <= static_cast<NodeId>(peers_.size()); ++rank) {
      const std::byte* const piece = rank == plan_->self ? own_ : find(rank)->piece;
      if (rank == 0)
        std::memcpy(operands_.out, piece, plan_->bytes);
      else
        operands_.reduce(operands_.out, operands_.out, piece, count);
    }
    if (operands_.divisor > 1) kernel::divide(operands_.type, operands_.out, count, operands_.divisor);
  }

  BufferPool& pool_;
  std::shared_ptr<const FloodPlan> plan_;
  Operands operands_;
  std::vector<Peer> peers_;
  std::byte* own_ = nullptr;  // the input may be overwritten by the sum
  std::int64_t wake_ns_ = 0;
  bool begun_ = false, summed_ = false;
};

inline std::unique_ptr<Transfer> FloodPlan::make_transfer(BufferPool& pool) const {
  return std::make_unique<Flood>(pool);
}

inline std::shared_ptr<FloodPlan> flood_plan(int rank, int size, std::size_t bytes,
                                             std::int64_t pause_ns = 1'000) {
  auto plan = std::make_shared<FloodPlan>();
  plan->self = rank;
  plan->name = "flood";
  plan->bytes = bytes;
  plan->pause_ns = pause_ns;
  for (int r = 0; r < size; ++r)
    if (r != rank) plan->announce_to.push_back(r);
  return plan;
}

}  // namespace talweg::protocol
