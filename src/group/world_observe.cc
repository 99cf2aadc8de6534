// What a World writes down now and then, and how it learns rank 0's time.
#include "base/log.h"
#include "group/world.h"

namespace talweg::group {

void World::ask_time(std::int64_t now_ns) {
  live::OutFrame question;
  question.header = encode(wire::Ping{now_ns});
  question.priority = protocol::kUrgent;  // what waits in a queue tells a wrong time
  engine_.send(0, std::move(question));
}

void World::on_clock_frame(int peer, const wire::Header& header) {
  const std::int64_t now = live::now_ns();
  if (header.type == wire::FrameType::pong) {
    const wire::Pong pong = wire::pong_of(header);
    if (peer == 0) observer_.learn_time(pong.asked_ns, pong.answered_ns, now);
    return;
  }
  live::OutFrame answer;
  answer.header = encode(wire::Pong{wire::ping_of(header).asked_ns, now});
  answer.priority = protocol::kUrgent;
  engine_.send(peer, std::move(answer));
}

observe::Sight World::sight(std::int64_t now_ns) {
  const observe::ObserverOptions& o = observer_.options();
  const live::EngineStatistics engine = engine_.statistics();
  observe::Sight sight{o.rank,
                       o.size,
                       o.hosts[static_cast<std::size_t>(o.rank)],
                       o.job,
                       in_flight_,
                       engine.bytes_sent,
                       engine.bytes_received,
                       pool_.peak_bytes(),
                       {},
                       observer_.bounded(),
                       observer_.switched()};
  std::vector<double> lag(static_cast<std::size_t>(o.size), 0.0);
  for (const auto& [id, group] : groups_) {
    group->add_lag(lag, now_ns);
    group->add_traffic(sight.switched);
  }
  for (const live::PeerStatistics& peer : engine_.peer_statistics())
    if (peer.rank < o.size)
      sight.peers.push_back({peer.rank, o.hosts[static_cast<std::size_t>(peer.rank)], peer.retransmits,
                             static_cast<double>(peer.round_trip_us) * 1e-6,
                             lag[static_cast<std::size_t>(peer.rank)], peer.datagrams, peer.paths_left});
  return sight;
}

bool World::write_down(const std::string& path, const std::string& text) const {
  const std::string why = observe::write_atomically(path, text);
  if (!why.empty())
    Logger(observer_.options().rank).log(LogLevel::warn, "observe", "cannot write {}: {}", path, why);
  return why.empty();
}

// From the progress thread: files are written without the lock, so that nobody waits for a disk.
void World::look(std::unique_lock<std::mutex>& lock) {
  const std::int64_t now = live::now_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + observe::Observer::kLookNs / 2;
  struct File {
    std::string path;
    std::string text;
    bool record;
  };
  std::vector<File> files;
  if (observer_.dump_asked()) {
    for (const auto& [id, group] : groups_)
      files.push_back({observer_.record_path(id), group->record("asked for by a signal"), true});
    if (observe::Trace* trace = observer_.trace()) trace->flush();
  }
  if (observer_.metrics_due(now))
    files.push_back({observer_.options().metrics_file, observer_.metrics()->text(sight(now)), false});
  if (files.empty()) return;
  lock.unlock();
  const Logger log(observer_.options().rank);
  for (const File& file : files) {
    if (write_down(file.path, file.text) && file.record)  // somebody asked, and wants to know where
      log.log(LogLevel::warn, "observe", "flight record written to {}", file.path);
  }
  lock.lock();
}

}  // namespace talweg::group
