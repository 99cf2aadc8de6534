// SwitchStreams: the switches that sum for a group, as one stream of sums: each sums a part of every vector
// (switch_stream.h). Those that all ranks have joined share it; one that is lost or not there yet is done
// without, from the call on at which all ranks know. Exact sums need all of them.
//
// What is said of a sum in a vote, life and number, stands for those of all its parts.
//
// Each switch makes one sum after the other. So those of calls with a priority have a second job at each,
// from the first of them on, with an order of its own: they never wait for others. A rank that gives a call a
// priority has it in both lines, and says so in its word; where all say the same it is made in the second
// one, and passed in the first, else the other way round. Not where forms are chosen, which need the word.
//
// Locks: as of SwitchStream; all that is called of a sum is called under the World's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forest/cost.h"
#include "group/switch_stream.h"
#include "group/switch_wish.h"
#include "live/fork_mark.h"

namespace talweg::group {

// Where the parts of a vector end, one for each rate, in elements: in proportion to the rates, rounded up to
// multiples of kShareElements. All ranks that have the same rates have the same parts.
inline constexpr std::size_t kShareElements = 4096;
std::vector<std::size_t> share_ends(std::size_t elements, std::span<const double> rates);

// In which a vector passes the slowest link of a rank once.
double seconds_on_links(const forest::CostModel& model, int ranks, double bytes);

class SwitchStreams final : public protocol::SumStream {
 public:
  // `later`: they are joined when open() is called, else at once, as by open().
  SwitchStreams(const SwitchWish& wish, const SwitchStream::Place& place, const Logger& log,
                const std::function<void()>& changed, bool later = false);
  // Of a group of some of this one's ranks, with a job of its own, once that has been opened.
  std::shared_ptr<SwitchStreams> of_part(std::span<const int> ranks, int rank, const std::string& job,
                                         const Logger& log, const std::function<void()>& changed) const;
  // Joins them, the first time. What the system refuses is said, and calls go by trees.
  void open();
  bool opened() const { return opened_; }
  void stop();  // as SwitchStream::stop, of all

  std::shared_ptr<protocol::QueuedSum> line_up(bool urgent) override;
  // Of forms that are not chosen there is nothing to say but the life.
  Said say(const protocol::QueuedSum& sum, const protocol::SumTask& task,
           const protocol::SumPrices& prices) override;
  std::optional<protocol::SumForm> choose(protocol::QueuedSum& sum, const protocol::SumTask& task,
                                          std::span<const std::uint32_t> words,
                                          const protocol::SumPrices& prices) override;
  void learn(const protocol::SumTask& task, const protocol::VectorSample& sample) override;
  void go(protocol::QueuedSum& sum, const protocol::SumTask& task) override;
  // These two do nothing in a forked child, which lets go of a group.
  void pass(protocol::QueuedSum& sum) override;
  // A task in place has its input back.
  void abandon(protocol::QueuedSum& sum) override;
  Progress look(const protocol::QueuedSum& sum) const override;
  // Of a sum of rows that is done, once: its result. Empty: what has come is not whole rows.
  static std::optional<protocol::RowSums::Summed> take_rows(protocol::QueuedSum& sum);
  // What rows take, of which so many are on any rank, by those in whose line the sum is; of several no less
  // than their bytes do at so many seconds each.
  static double seconds_of_rows(const protocol::QueuedSum& sum, double rows, std::size_t width,
                                wire::AggregationFormat format, protocol::SumForm form, double on_links);
  // Of a sum that is done, of which a part may be missing.
  static protocol::SumLosses losses(const protocol::QueuedSum& sum);
  // Elements that may be missing of each rank's in a sum by those that are there.
  std::uint64_t most_missing(std::size_t elements, std::uint32_t ppm) const;
  // A job's first of the group's at those that are there, of which nothing may be missing.
  std::uint32_t exact_sums() const;

  // What a vector takes by those that are there, had they nothing in common on the way to them, and how many
  // have a part of it; empty: none is there, or of exact sums not all. Dense; `least`: where forms are
  // chosen, of one that is zero.
  struct Estimate {
    double seconds = 0;
    int switches = 0;
  };
  std::optional<Estimate> estimate(std::size_t elements, wire::AggregationFormat format,
                                   bool least = false) const;
  std::uint64_t lives() const;
  // Elements that travel together, or not, to the first one that is there; 0: there is none.
  std::size_t block() const;
  bool always() const { return always_; }
  const SwitchWish& wish() const { return wish_; }
  const SwitchStream::Place& place() const { return place_; }
  bool chooses_forms() const { return sparse_ == SwitchSparse::chosen; }
  std::optional<wire::AggregationFormat> format_of(DataType type) const {
    return group::format_of(wish_, type);
  }
  std::string describe() const;
  SwitchStream::Traffic traffic() const;  // of all of them

 private:
  struct Split;
  struct Share {
    SwitchStream::Cost cost;
    double rate = 1;
  };
  // By what each takes for so many elements.
  using SecondsOf = std::function<double(const SwitchStream::Cost& cost, std::size_t elements)>;
  static Estimate slowest(std::span<const Share> shares, std::size_t elements, const SecondsOf& seconds_of);
  Share share_of(const SwitchStream::Cost& cost) const;
  using Streams = std::vector<std::unique_ptr<SwitchStream>>;
  void open_at(Streams& streams, const std::string& job) const;
  void open_urgent();
  static void pass_other(Split& split);
  static void go_rows(Split& split);
  bool enough(std::size_t there) const;
  const live::ForkMark mark_;  // in a forked child others' threads may hold the locks, for ever
  const SwitchWish wish_;
  const SwitchStream::Place place_;
  const Logger log_;
  const std::function<void()> changed_;
  const bool always_;
  const SwitchSparse sparse_;
  const bool equal_;  // parts, of all: the bits of exact sums depend on where blocks begin
  bool opened_ = false;
  Streams streams_;
  Streams urgent_;  // of calls with a priority; empty: there was none yet
  bool urgent_tried_ = false;
  protocol::FormChooser chooser_;
};

}  // namespace talweg::group
