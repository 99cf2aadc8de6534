// Node: the process of one rank. Its sessions, its connections to the others, and the program that it runs.
// What live::Engine, World and GroupImpl do around the protocols is done here in virtual time, one piece of
// work at a time.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chaos/calls.h"
#include "chaos/pipe.h"
#include "live/tcp/pulse.h"

namespace talweg::chaos {

class Node {
 public:
  Node(World& world, int rank);
  ~Node();

  int rank() const { return rank_; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  const protocol::BufferPool& pool() const { return pool_; }
  std::size_t most_memory() const { return most_memory_; }

  // Setting up.
  struct Peer {
    std::vector<Pipe*> out;
    std::vector<Pipe*> in;
    live::Pulse pulse;
    Picoseconds answered = 0;  // when it was last heard of
    bool gone = true;
  };
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void join(int group, std::uint32_t id, const std::vector<int>& members, std::vector<Record>& records);
  void replace(int old_group, int group, const std::vector<int>& members, std::vector<Record>& records);
  void begin(Picoseconds when);

  // Faults.
  void pause(bool paused);
  void crash();
  void leave();
  void abort();

  // From the network.
  void wake();
  void tick(bool look_for_hosts);
  void on_reset(int rank);
  void lose(int rank, ErrorCode code, const std::string& why);

  // From its pipes.
  protocol::Session::Placement place(int from, const wire::Header& header);
  void on_frame(int from, const wire::Header& header, const std::byte* payload);
  void on_sent(std::uint32_t group, const protocol::Token& token);

  // All that it has to call has ended, or cannot begin any more.
  bool finished() const;
  // What still waits, for a report.
  std::string waiting() const;
  std::size_t in_flight() const;
  bool helps() const;

 private:
  struct Member;
  void work();
  void receive_from(std::size_t peer, bool& more);
  void end_of_streams(std::size_t peer);
  void schedule_program(Picoseconds after);
  void run_program();
  Member* next_to_start();
  bool ready(const Member& member) const;
  void start(Member& member);
  void on_completed(Member& member, Record& record, const protocol::Outcome& outcome);
  void gone(int rank, std::optional<ErrorCode> code, const std::string& why);
  void watch(const Member& member, int from, const wire::Header& header);

  World& world_;
  const int rank_;
  protocol::BufferPool pool_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, std::unique_ptr<Member>> members_;  // by the group's number on the wire
  bool alive_ = true;
  bool paused_ = false;
  bool someone_left_ = false;
  bool working_ = false;   // a piece of work is scheduled
  bool thinking_ = false;  // a step of the program is
  std::size_t memory_ = 0;
  std::size_t most_memory_ = 0;
};

}  // namespace talweg::chaos
