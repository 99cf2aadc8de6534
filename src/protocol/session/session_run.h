// One operation of a session, from its start to its outcome. Private to the session's own files.
#pragma once

#include <typeindex>
#include <typeinfo>

#include "protocol/session/session.h"

namespace talweg::protocol {

inline constexpr std::uint64_t kMessageBit = 1ULL << 63;  // in the numbers of sends and receives
inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::max();

struct Session::Run {
  enum class Kind { collective, send, receive };

  std::uint64_t id = 0;
  Kind kind = Kind::collective;
  Operation op;
  std::unique_ptr<Transfer> transfer;  // of an earlier run, until this one is prepared
  std::type_index made_for = typeid(void);
  std::uint64_t order = 0;   // in which all kinds were started
  bool begun = false;        // its transfer has
  std::int64_t look_ns = 0;  // for when its transfer has asked
  bool unplanned = false;    // waits for its plan; what comes for it meanwhile is kept as early
  bool gated = false;        // waits for everybody's announcement before it begins
  std::vector<bool> agreed;  // gated: who has announced the same
  int missing = 0;           // gated: how many have not
  int peer = kNone;          // messages; of a receive once it has found one
  int source = kNone;        // receives: who was named, if anybody
  std::uint64_t number = 0;  // messages: the sender's number for it
  std::uint32_t tag = 0;
  bool failing = false;
  bool disputed = false;           // all ranks were told what is called here
  bool waits_for_earlier = false;  // a fence that is done but for that
  bool asked = false;              // close to its deadline: all ranks were asked whether they have started it
  std::vector<bool> answered;      // asked: who has been heard since
  std::vector<Early> held;         // pairwise collectives: data that came before everybody had agreed

  // Nodes that only help know no counts of pairs.
  std::int64_t count_of(const std::vector<std::int64_t>& by_rank, int node) const {
    const auto n = static_cast<std::size_t>(node);
    return by_rank.empty() ? op.signature.count : n < by_rank.size() ? by_rank[n] : kUnknownCount;
  }
  // What this rank tells `to`, and expects to be told by `from`.
  std::int64_t told(int to) const { return count_of(op.tell, to); }
  std::int64_t expected(int from) const { return count_of(op.expect, from); }
};

// What a transfer asks of the session on behalf of its run.
class Session::Acting final : public Actions {
 public:
  Acting(Session& session, Run& run) : session_(session), run_(run) {}
  wire::CallId call(NodeId to) const override { return session_.call(run_, to); }
  bool send(NodeId to, const wire::Header& header, const Payload& payload) override {
    return session_.outbox_.send(to, header, payload.data,
                                 {run_.id, payload.piece, payload.buffer, payload.progress, true},
                                 run_.op.priority, payload.stable);
  }
  // Behind the data that wait for the same node it would hold up what it grants.
  void tell(NodeId to, const wire::Header& header) override { session_.post(to, header, kUrgent); }
  std::uint32_t grant(NodeId to, std::uint32_t bytes, std::uint32_t most) override {
    return session_.is_rank(to) ? session_.initial_grant(run_, to, bytes)
                                : session_.grant_of_helper(run_, to, std::size_t{bytes} * most);
  }

 private:
  Session& session_;
  Run& run_;
};

}  // namespace talweg::protocol
