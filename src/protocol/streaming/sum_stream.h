// SumStream: what makes sums in the network for a group, beside its session. A rank takes part in one life of
// it at a time; a life makes one sum after the other, in the order in which calls have lined up, and the
// n-th sum of a life is the n-th on all ranks. What breaks that order ends the life: StreamRun asks, and
// goes on by trees.
//
//   auto sum = stream.line_up(urgent);     // null: there is none now
//   const auto said = stream.say(*sum, task, prices);                  // for all ranks
//   task.form = stream.choose(*sum, task, words, prices);              // by what all of them say; or trees
//   stream.go(*sum, task);                 // all ranks have it in line, of the same life
//   stream.pass(*sum);                     // or: not all have, and it is for none of them
//   stream.abandon(*sum);                  // this rank gives it up, whatever the others do
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "protocol/streaming/sum_form.h"

namespace talweg::protocol {

// A sum in line. Who runs it writes to task.out while it is `running`, and never otherwise.
struct QueuedSum {
  enum class State { undecided, decided, running, done, failed };
  State state = State::undecided;
  std::uint32_t life = 0;
  std::uint32_t number = 0;  // from 1, once it is running
  SumTask task;
  KeptInput kept;    // of a task in place: its input, as far as it has been overwritten
  SumLosses losses;  // of a task of which a part may be missing, once it is done
};

// What a vector takes otherwise, and at least. Where they are not the same on all ranks it goes by trees.
struct SumPrices {
  double trees_seconds =
      std::numeric_limits<double>::infinity();  // by trees; infinity: they are not to be had
  double links_seconds = 0;  // for all of its bytes on what all that makes the sum has in common
};

class SumStream {
 public:
  struct Progress {
    QueuedSum::State state = QueuedSum::State::undecided;
    std::uint32_t number = 0;
  };
  struct Said {
    std::uint32_t terms = 0;  // of the sum's life, and of all by which choose() chooses but words
    std::uint32_t word = 0;
    VectorSample sample;
  };
  virtual ~SumStream() = default;
  // `urgent`: it should not wait for those that are not. It does not where all ranks say so.
  virtual std::shared_ptr<QueuedSum> line_up(bool urgent) = 0;
  // What all ranks are told of it before it is summed, and from what that is.
  virtual Said say(const QueuedSum& sum, const SumTask& task, const SumPrices& prices) = 0;
  // `words` of all ranks, which have the same terms. Empty: by trees. All ranks come to the same.
  virtual std::optional<SumForm> choose(QueuedSum& sum, const SumTask& task,
                                        std::span<const std::uint32_t> words, const SumPrices& prices) = 0;
  // The sum is in task.out, by whichever way; divided or not, but not by so much that it is zero.
  virtual void learn(const SumTask& task, const VectorSample& sample) = 0;
  virtual void go(QueuedSum& sum, const SumTask& task) = 0;
  virtual void pass(QueuedSum& sum) = 0;
  // Its memory is not touched any more once this returns; what was summed in place has its input back. Ends
  // the life that it is of.
  virtual void abandon(QueuedSum& sum) = 0;
  // Whoever drives the session tells it when this may have changed: Session::look_again.
  virtual Progress look(const QueuedSum& sum) const = 0;
};

// The line of one rank, for whoever is a SumStream. Pure: no lock, no thread.
class SumQueue {
 public:
  bool alive() const { return alive_; }
  void open(std::uint32_t life);
  // The life has ended: what is in line has failed.
  void close();

  std::shared_ptr<QueuedSum> line_up();  // null: no life
  void go(QueuedSum& sum, const SumTask& task);
  void pass(const QueuedSum& sum);
  void abandon(const QueuedSum& sum);

  // The sum to run now, whose turn has come; null: none, or memory does not hold the input of one in place,
  // and the life is closed. Before what is summed in place is overwritten it is kept (QueuedSum::kept).
  std::shared_ptr<QueuedSum> next();
  void done(QueuedSum& sum);  // the one that was running

 private:
  bool alive_ = false;
  std::uint32_t life_ = 0;
  std::uint32_t sums_ = 0;  // of this life
  std::deque<std::shared_ptr<QueuedSum>> line_;
};

}  // namespace talweg::protocol
