// How ranks go on without a node that sums for them and is lost: from the same call on.
//
// Ranks learn of a loss at different moments. So each says to all others, at the moment at which it learns of
// it, which call it is to begin next, and holds its calls until it has heard from all: the greatest number is
// the first call that is planned without the node. Those before it had been begun by somebody with it, and
// fail on all ranks. A rank that is gone says no more, and nobody waits for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace talweg::steer {

class Losses {
 public:
  Losses(int ranks, int rank) : ranks_(static_cast<std::size_t>(ranks)), rank_(rank) {}

  bool knows(int node) const;
  // This rank learns that `node` is lost, and is to begin the call `next` next.
  void lose(int node, std::uint64_t next);
  // Rank `from` has said that of a node that is known to be lost.
  void hear(int from, int node, std::uint64_t next);
  void gone(int rank);
  // True while calls must wait for what others say.
  bool open() const { return !std::all_of(losses_.begin(), losses_.end(), complete); }

  // The ranks that have not spoken, ascending.
  std::vector<int> missing() const;

  struct Agreed {
    int node = 0;
    std::uint64_t from = 0;  // the first call without it
  };
  // What has been agreed since this was asked last.
  std::vector<Agreed> take();

 private:
  struct Loss {
    Agreed agreed;
    std::vector<bool> heard;  // by rank
    bool taken = false;
  };
  static bool complete(const Loss& loss);

  std::size_t ranks_;
  int rank_;
  std::vector<int> gone_;
  std::vector<Loss> losses_;
};

}  // namespace talweg::steer
