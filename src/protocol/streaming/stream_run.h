// StreamRun: an all_reduce that a stream of sums makes (sum_stream.h), or trees where it does not.
//
// All ranks must do the same at the same call, though each knows only of its own connection to the stream.
// So they vote, each to all others, in frames of the call, which carry its signature:
//
//   ready    I have it in line, on these terms (the stream's life, and what I choose by); and a word of what it
//            is (SumStream::say)
//   done     its sum is in my output, and was this one of the stream
//   failed   I go by trees: there is no stream here, it does not pay, or has failed in this sum
//
// Once all are ready, on the same terms, each starts the sum, in the form that all choose by these words, or
// goes by trees, where all choose these: all ranks agree on the call then, and no output has been written
// before. Once all are done the call is, and not sooner: whoever has its result still knows what it has
// contributed. One `failed`, or a frame of the trees, which comes only from a rank that goes by
// them, is enough for all to go by trees, from the beginning, with what each has contributed: a rank that has
// not voted `done` can tell nobody that it has, and one that has waits for the votes of all. A rank that says
// `failed` at once waits for nobody. Should ranks choose differently all the same, one that goes by trees
// answers `done` with `failed`.
//
// That every sum was of the same vectors is the stream's promise (the n-th of a life on one rank is the n-th
// on all). It is checked: the numbers in the votes must be the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <typeindex>
#include <vector>

#include "protocol/streaming/sum_stream.h"
#include "protocol/transfer.h"

namespace talweg::protocol {

struct StreamPlan : Plan {
  std::unique_ptr<Transfer> make_transfer(BufferPool& pool) const override;

  std::shared_ptr<const Plan> trees;  // of the same call; its transfer has no frames of its own (wire::Own)
  std::shared_ptr<SumStream> stream;
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  bool wanted = true;   // by this rank
  bool absent = false;  // it is not, as there is no stream now
  bool urgent = false;  // as SumStream::line_up
  SumPrices prices;
};
// `trees` is the plan of an all_reduce of at least one element. Where one rank has such a plan for a call all
// have one; whether it is wanted they need not agree on.
std::shared_ptr<const StreamPlan> make_stream_plan(std::shared_ptr<const Plan> trees,
                                                   std::shared_ptr<SumStream> stream,
                                                   wire::AggregationFormat format, bool wanted,
                                                   const SumPrices& prices = {}, bool absent = false,
                                                   bool urgent = false);

class StreamRun : public Transfer {
 public:
  explicit StreamRun(BufferPool& pool) : pool_(pool) {}
  ~StreamRun() override { StreamRun::release(); }
  StreamRun(const StreamRun&) = delete;
  StreamRun& operator=(const StreamRun&) = delete;

  // A StreamPlan; the operands' reduction is a sum.
  void reset(std::shared_ptr<const Plan> plan, const Operands& operands) override;
  void begin(Actions& actions) override;
  void on_ready(NodeId node, Actions& actions) override;
  const char* on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                       Actions& actions) override;
  std::byte* place(NodeId from, const wire::Header& header) const override;
  void on_sent(std::uint32_t piece, std::byte* buffer, Actions* actions) override;
  void on_time(std::int64_t now_ns, Actions& actions) override;
  std::int64_t next_time_ns() const override;
  bool done() override;
  SumWay way() const override;
  std::vector<NodeId> waiting_for() const override;
  bool depends_on(NodeId node) const override;
  void release() override;

 private:
  enum class Phase { idle, line, sum, voted, agreed, trees };
  enum Vote : std::uint32_t { vote_ready, vote_done, vote_failed, vote_kinds };
  struct Heard {
    bool ready = false, done = false;
    std::uint32_t terms = 0, sum = 0, word = 0;
  };

  const char* on_vote(NodeId from, const wire::Own& own, Actions& actions);
  void vote(Vote vote, std::uint32_t of, Actions& actions);
  void decide(Actions& actions);
  void start(SumForm form, Actions& actions);
  bool all_ready() const;
  bool on_same_terms() const;
  std::optional<SumForm> choose();
  void learn();
  void go_by_trees(Actions& actions);

  BufferPool& pool_;
  std::shared_ptr<const StreamPlan> plan_;
  Operands operands_;
  Phase phase_ = Phase::idle;
  std::vector<Heard> heard_;  // by rank
  std::shared_ptr<QueuedSum> sum_;
  SumTask task_;
  SumStream::Said said_;
  bool chosen_ = false;
  bool chose_trees_ = false;
  std::vector<std::uint32_t> words_;  // by rank
  std::unique_ptr<Transfer> trees_;   // of an earlier call, until this one goes by them
  std::type_index made_for_ = typeid(void);
};

}  // namespace talweg::protocol
