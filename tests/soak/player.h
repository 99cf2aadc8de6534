// One thread of one rank: plays the steps of its own stream in groups of its own, several in flight, and
// checks what comes of each.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "step.h"
#include "talweg/group.h"

namespace talweg::soak {

class Player {
 public:
  static constexpr std::size_t kGroups = 3;

  // `all` is this thread's: nobody else calls it. Every rank's player of this `stream` draws the same steps.
  Player(std::shared_ptr<Group> all, std::uint64_t seed, std::uint64_t stream, std::size_t max_bytes);
  // Plays as many steps and waits for all. Throws std::runtime_error that says which step came out wrong.
  void play(long steps);
  // New groups in place of all but the first: what those of before have kept is gone. Every rank's player of
  // this stream does so after the same step.
  void start_afresh();
  // Fails whatever the other ranks' players of this stream still wait for.
  void abort(const std::string& why);

 private:
  struct Pending {
    Step step;
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    std::vector<WorkPtr> works;
    long number = 0;
  };

  void regroup(const Step& step);
  void start(Pending& p);
  void start_collective(Pending& p);
  void start_messages(Pending& p);
  void wait(Pending& p);
  std::size_t wrong(const Pending& p) const;
  void finish_one();
  void pause();

  const std::size_t max_bytes_;
  Random steps_;  // the same on all ranks
  Random whims_;  // this rank's own: delays, and in which order it waits
  std::vector<std::shared_ptr<Group>> groups_;
  std::vector<int> sizes_;
  std::deque<std::unique_ptr<Pending>> pending_;
  long number_ = 0;
};

}  // namespace talweg::soak
