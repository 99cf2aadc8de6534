#include "group/aggregator.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/log.h"
#include "group/joining.h"
#include "live/engine.h"
#include "observe/observer.h"
#include "protocol/session/session.h"
#include "steer/plan_word.h"
#include "steer/shared_plans.h"
#include "talweg/error.h"

namespace talweg::group {

namespace {

// Looks at the network before it sleeps: with ranks on other hosts it is the kernel that has work to do.
constexpr int kIdleLooks = 50;
constexpr unsigned kNoRoomUs = 20;
constexpr std::int64_t kNoLook = std::numeric_limits<std::int64_t>::max();

protocol::Members members_of_mesh(const live::Mesh& mesh) {
  protocol::Members members{mesh.seat, mesh.ranks, {}};
  for (const live::Connection& c : mesh.connections)
    members.names.push_back(c.name.empty() ? fmt::format("rank {} ({})", c.rank, c.host)
                                           : fmt::format("aggregator {} ({})", c.name, c.host));
  return members;
}

std::vector<int> lost_seats(const live::Mesh& mesh) {
  std::vector<int> lost;
  for (const live::Connection& c : mesh.connections)
    if (c.rank != mesh.seat && c.streams.empty()) lost.push_back(c.rank);
  return lost;
}

class Aggregator : private live::FrameHandler, private protocol::Outbox {
 public:
  Aggregator(live::Mesh mesh, const live::LinkOptions& options, std::string name)
      : name_(std::move(name)),
        ranks_(mesh.ranks),
        left_(mesh.ranks),
        members_(members_of_mesh(mesh)),
        lost_(lost_seats(mesh)),
        plans_(members_.self, ranks_, static_cast<int>(members_.names.size())),
        engine_(mesh.seat, std::move(mesh), options, *this),
        session_(members_, 0, *this, pool_, nullptr) {
    session_.serve(
        [this](std::uint64_t call, const wire::Signature& signature) { return part_of(call, signature); });
    for (const int seat : lost_) session_.on_peer_gone(seat, ErrorCode::peer_failed, "it never connected");
  }

  void run() {
    std::int64_t next_look_ns = 0;
    for (int idle = 0; left_ > 0;) {
      if (engine_.poll()) {
        idle = 0;
        continue;
      }
      if (++idle < kIdleLooks) {
        ::sched_yield();
        continue;
      }
      const std::int64_t now = live::now_ns();
      if (now >= next_look_ns) next_look_ns = now + engine_.check_hosts();
      if (now >= look_ns_) {
        look_ns_ = kNoLook;
        session_.on_time(now);
      }
      engine_.flush();
      if (!engine_.prepare_sleep()) {
        ::usleep(kNoRoomUs);
        continue;
      }
      const std::int64_t until = std::min(next_look_ns, look_ns_);  // calls have no deadlines here
      engine_.sleep(static_cast<int>(std::clamp<std::int64_t>((until - now) / 1'000'000 + 1, 0, 1000)));
      idle = 0;
    }
    engine_.say_goodbye();
  }

 private:
  live::Place place(int peer, const wire::Header& header) override {
    if (header.group != 0) return {};
    const auto placement = session_.place(peer, header);
    return {placement.data, 0, placement.run};
  }

  void on_frame(int peer, const wire::Header& header, const std::byte* payload) override {
    using wire::FrameType;
    if (header.group != 0 || header.type == FrameType::wake || header.type == FrameType::ping ||
        header.type == FrameType::pong)
      return;
    if (header.type == FrameType::plan)
      on_plan(peer, header, payload);
    else if (header.type == FrameType::past && peer < ranks_)
      plans_.passed(peer, wire::past_of(header).call);
    else
      session_.on_frame(peer, header, payload);
  }

  void on_sent(std::uint32_t, const protocol::Token& token) override { session_.on_sent(token); }

  void on_peer_gone(int peer, std::optional<ErrorCode> failure, const std::string& why) override {
    if (peer < ranks_) {
      --left_;
      plans_.passed(peer, steer::kNever);
    }
    if (failure) log_.log(LogLevel::warn, "aggregator", "{}: {} has gone: {}", name_, who(peer), why);
    session_.on_peer_gone(peer, failure, why);
  }

  // What rank 0 says of plans.
  void on_plan(int peer, const wire::Header& header, const std::byte* payload) {
    if (peer != protocol::kPlanner) return;
    try {
      const auto word = word_.add({payload, header.length}, wire::plan_part_of(header).last);
      if (!word) return;
      plans_.hear(*word);
    } catch (const std::exception& e) {
      // Nobody could ever go on with it: every call that names it must fail.
      give_up(fmt::format("it cannot follow a plan of {}: {}", who(peer), e.what()));
      return;
    }
    session_.serve_early();
  }

  std::optional<protocol::Operation> part_of(std::uint64_t number, const wire::Signature& signature) {
    steer::SharedPlan plan = plans_.find(number, signature.plan);
    if (plan == nullptr) return std::nullopt;
    const forest::Request& request = plan->forest->request;
    const Call call{.op = request.op, .type = signature.type, .reduction = signature.reduction};
    try {
      if (static_cast<std::int64_t>(size_of(signature.type)) != request.element_size)
        throw Error(ErrorCode::corrupted, fmt::format("{} by a plan for elements of {} bytes",
                                                      to_string(signature), request.element_size));
      protocol::Operation part = protocol::make_operation(call, members_.self, request);
      part.deadline_ns = std::numeric_limits<std::int64_t>::max();  // the ranks have theirs
      part.plan = std::move(plan);
      return part;
    } catch (const Error& e) {  // no rank of ours asks for that
      give_up(fmt::format("it cannot take part in a call: {}", e.what()));
      return std::nullopt;
    }
  }

  void give_up(const std::string& why) {
    log_.log(LogLevel::warn, "aggregator", "{}: {}", name_, why);
    session_.abort(why);
  }

  bool send(int to, const wire::Header& header, const std::byte* payload, const protocol::Token& token,
            int priority, bool stable) override {
    live::OutFrame frame;
    frame.header = header;
    frame.payload = payload;
    frame.token = token;
    frame.priority = priority;
    frame.stable = stable;
    frame.reported = !token.data;
    return engine_.send(to, std::move(frame));
  }
  void send_text(int to, const wire::Header& header, const std::string& text) override {
    live::OutFrame frame;
    frame.header = header;
    frame.text = text;
    frame.priority = protocol::kUrgent;
    engine_.send(to, std::move(frame));
  }
  void cancel(std::uint64_t run) override { engine_.cancel(0, run); }
  void look_at(std::int64_t when_ns) override { look_ns_ = std::min(look_ns_, when_ns); }
  void completed(void*, const protocol::Outcome& outcome) override {
    if (!outcome.ok) log_.log(LogLevel::info, "aggregator", "{}: {}", name_, outcome.text);
  }

  const std::string& who(int seat) const { return members_.names[static_cast<std::size_t>(seat)]; }

  const std::string name_;
  const Logger log_;
  const int ranks_;
  int left_;  // ranks that are still there
  const protocol::Members members_;
  const std::vector<int> lost_;
  protocol::BufferPool pool_;
  steer::SharedPlans plans_;
  steer::WordParts word_;  // of rank 0's, as far as it is here
  std::int64_t look_ns_ = kNoLook;
  live::Engine engine_;
  protocol::Session session_;
};

}  // namespace

std::uint64_t serve_group(const AggregatorOptions& options) {
  if (options.name == "-" || options.name.find_first_of(" \t\n\r\v\f") != std::string::npos)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--name: expected a node's name, without blanks, got \"{}\"", options.name));
  GroupOptions as_rank;
  as_rank.rendezvous = options.rendezvous;
  as_rank.prefix = options.prefix;
  as_rank.interface = options.interface;
  // No rank of any size; but one that has others to meet.
  const Place nobody{-1, 2, "aggregator " + options.name};
  Joining joining = prepare_joining(as_rank, nobody, options.timeout, options.name);
  live::Mesh mesh = live::connect_all(*joining.store, joining.connect);
  joining.store.reset();
  const std::uint64_t job = mesh.job;
  Logger().log(LogLevel::info, "aggregator", "{}: it serves job {}, a group of {} ranks", options.name,
               observe::job_number(job), mesh.ranks);
  Aggregator(std::move(mesh), joining.engine, options.name).run();
  return job;
}

}  // namespace talweg::group
