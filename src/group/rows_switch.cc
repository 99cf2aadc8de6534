#include "group/rows_switch.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/log.h"
#include "forest/planner.h"
#include "group/switch_vote.h"
#include "live/system.h"
#include "protocol/streaming/sum_form.h"

namespace talweg::group {

namespace {

using protocol::Rows;
using protocol::SumForm;

constexpr std::size_t kMostLearnt = 1024;  // shapes
constexpr std::int64_t kPricedBytes = 4 << 20;
// Blocks of the job: as long as the first call's rows, so that these fill datagrams with as many of them as
// have room. Longer ones are as the switch finds best. Short ones mostly travel as pairs, of which blocks of
// kForPairs elements have some tens.
constexpr std::size_t kLeastBlock = 16, kForPairs = 64, kMostBlock = 256, kBlockStep = 8;

SwitchWish of_rows(SwitchWish wish, std::size_t width) {
  wish.rows = true;
  wish.floats_as.reset();  // what rounding takes would have to be kept for rows that no rank has next time
  wish.sparse = SwitchSparse::none;
  const std::size_t whole = (width + kBlockStep - 1) / kBlockStep * kBlockStep;
  if (wish.block == 0 && whole < kMostBlock)
    wish.block = static_cast<std::uint16_t>(width < kLeastBlock ? kForPairs : whole);
  return wish;
}

// A switch with few places has them for the groups' other sums.
SwitchStream::Place job_of_rows(SwitchStream::Place place) {
  place.job += "-rows";
  place.speaks_for_host = false;
  place.part = true;
  return place;
}

// What an all_gather takes by the trees that are made for any network; infinity: they do not suit so many
// ranks.
double gather_seconds(const forest::CostModel& model, int ranks, std::int64_t bytes) {
  const forest::Request request = forest::even_request(Collective::all_gather, ranks, 0, bytes, 1);
  double least = std::numeric_limits<double>::infinity();
  for (const char* const name : {"direct", "ring"}) {
    const forest::Planner& planner = forest::find_planner(name);
    if (planner.serves(request) && planner.suits(request))
      least = std::min(least, model.seconds(planner.plan(request, model.network())));
  }
  return least;
}

std::uint64_t rows_in_all(std::span<const RowWords> said) {
  std::uint64_t rows = 0;
  for (const RowWords& words : said) rows += static_cast<std::uint64_t>(words.count);
  return rows;
}

}  // namespace

std::optional<wire::AggregationFormat> RowsSwitch::format_of(const RowsCall& call) const {
  const auto switches = group_.switches();
  if (switches == nullptr || call.limit < 1 || static_cast<std::uint64_t>(call.limit) > Rows::kMostKeys ||
      call.width < 1 || call.width > Rows::kMostKeys)
    return std::nullopt;
  return group::format_of(of_rows(switches->wish(), call.width), call.type);
}

RowsSwitch::Turn RowsSwitch::turn(std::int64_t deadline_ns) {
  const std::chrono::nanoseconds left(std::max<std::int64_t>(deadline_ns - live::now_ns(), 0));
  std::unique_lock guard(turn_);
  if (!turn_over_.wait_for(guard, left, [this] { return !in_turn_; }))
    throw_error(ErrorCode::timeout,
                "all_reduce of a sparse tensor: another one of this rank and group, which was called before "
                "it, has not ended");
  in_turn_ = true;
  return Turn(this);
}

void RowsSwitch::end_turn() {
  {
    const std::lock_guard guard(turn_);
    in_turn_ = false;
  }
  turn_over_.notify_one();
}

// What fails here alone, such as no memory, is as if the switch were not there: the others wait for a word.
void RowsSwitch::line_up(const RowsCall& call, RowWords& words) {
  try {
    if (streams_ == nullptr || !format_of(call)) return;
    const Prices now = streams_->always() ? Prices{} : prices();
    if (!streams_->always() && !merging_) merging_ = measure_merging(static_cast<std::size_t>(group_.size()));
    sum_ = streams_->line_up(false);
    if (sum_ == nullptr) return;
    words.in_line = std::uint64_t{1} << 63 | sum_->life;  // never 0
    words.prices = std::uint64_t{std::bit_cast<std::uint32_t>(now.words)} << 32 |
                   std::bit_cast<std::uint32_t>(now.per_byte);
    words.merging = merging_ ? std::bit_cast<std::uint64_t>(*merging_) : 0;
    words.links = std::bit_cast<std::uint32_t>(now.on_links);
    words.learnt = std::bit_cast<std::uint32_t>(learnt(call));
  } catch (const std::exception&) {
    leave(true);
  }
}

bool RowsSwitch::decide(const RowsCall& call, std::span<const RowWords> said) {
  if (sum_ == nullptr) {
    try {
      if (streams_ == nullptr && format_of(call)) open(call);
    } catch (const std::exception&) {  // as in line_up()
    }
    return false;
  }
  const bool alike = std::ranges::all_of(said, [&](const RowWords& w) { return w.same_line(said[0]); });
  const auto form = alike ? choose(call, said) : std::nullopt;
  if (!form) {
    leave(true);
    return false;
  }
  rows_ = {call.keys, static_cast<const std::byte*>(call.values), static_cast<std::uint64_t>(call.limit),
           call.width, rows_in_all(said)};
  task_ = {};
  task_.format = *format_of(call);
  task_.form = *form;
  task_.rows = &rows_;
  return true;
}

void RowsSwitch::leave(bool all) {
  if (sum_ == nullptr) return;
  all ? streams_->pass(*sum_) : streams_->abandon(*sum_);
  sum_.reset();
}

void RowsSwitch::open(const RowsCall& call) {
  const auto switches = group_.switches();
  streams_ =
      std::make_shared<SwitchStreams>(of_rows(switches->wish(), call.width), job_of_rows(switches->place()),
                                      Logger(group_.rank()), [bell = bell_] { bell->ring(); });
  group_.keep_rows(streams_);
}

std::optional<protocol::RowSums::Summed> RowsSwitch::sum(const RowsCall& call, std::int64_t deadline_ns) {
  // What is left of the call's time is for trees.
  task_.silence_ns = std::max<std::int64_t>((deadline_ns - live::now_ns()) / 2, 1);
  std::optional<protocol::RowSums::Summed> summed;
  try {
    streams_->go(*sum_, task_);
    if (!all_have(group_, *streams_, *sum_, *bell_, deadline_ns, call.options.priority, [] {})) {
      leave(false);
      return std::nullopt;
    }
    summed = SwitchStreams::take_rows(*sum_);
  } catch (...) {  // what the others do with it is not known
    leave(false);
    throw;
  }
  sum_.reset();
  if (!summed)
    throw_error(ErrorCode::corrupted, "the switch has sent parts of rows that are no whole ones: {}",
                streams_->describe());
  return summed;
}

RowsSwitch::Prices RowsSwitch::prices() {
  const std::shared_ptr<const forest::CostModel> model = group_.model();
  if (prices_for_ == model) return prices_;
  const double words = gather_seconds(*model, group_.size(), std::int64_t{sizeof(RowWords)} * group_.size());
  const double many = gather_seconds(*model, group_.size(), kPricedBytes);
  prices_ = {static_cast<float>(protocol::rounded(words)),
             static_cast<float>(protocol::rounded(many / double{kPricedBytes})),
             static_cast<float>(protocol::rounded(seconds_on_links(*model, group_.size(), 1)))};
  prices_for_ = model;
  return prices_;
}

float RowsSwitch::learnt(const RowsCall& call) const {
  const auto found = learnt_.find(shape_of(call));
  return found == learnt_.end() ? 0 : found->second;
}

void RowsSwitch::learn(const RowsCall& call, std::span<const RowWords> said, std::size_t rows) {
  const std::uint64_t in_all = rows_in_all(said);
  if (in_all == 0) return;
  if (learnt_.size() >= kMostLearnt) learnt_.clear();
  learnt_[shape_of(call)] = static_cast<float>(rows) / static_cast<float>(in_all);
}

double RowsSwitch::rows_on_any(const RowsCall& call, std::span<const RowWords> said) const {
  const auto limit = static_cast<double>(call.limit);
  const auto in_all = static_cast<double>(rows_in_all(said));
  if (const float times = learnt(call); times > 0) return std::min(limit, in_all * double{times});
  double on_none = 1;
  for (const RowWords& words : said) on_none *= 1 - static_cast<double>(words.count) / limit;
  return limit * (1 - on_none);
}

// From what all ranks have been told alike. Empty: by trees.
std::optional<SumForm> RowsSwitch::choose(const RowsCall& call, std::span<const RowWords> said) const {
  const auto format = *format_of(call);
  const std::uint64_t in_all = rows_in_all(said);
  const std::size_t element = size_of(call.type);
  const double row_bytes = static_cast<double>(call.width * element);
  if (in_all == 0) return std::nullopt;
  const double rows = protocol::rounded(rows_on_any(call, said));
  const auto on_links = double{std::bit_cast<float>(said[0].links)};
  const auto seconds = [&](SumForm form) {
    return protocol::rounded(streams_->seconds_of_rows(*sum_, rows, call.width, format, form, on_links));
  };
  const double blocks = seconds(SumForm::blocks), pairs = seconds(SumForm::pairs);
  const SumForm quickest = pairs < blocks ? SumForm::pairs : SumForm::blocks;
  if (streams_->always()) return quickest;
  if (static_cast<double>(in_all) * row_bytes < static_cast<double>(streams_->wish().least_bytes()))
    return std::nullopt;
  TreePrices trees{double{std::bit_cast<float>(static_cast<std::uint32_t>(said[0].prices >> 32))},
                   double{std::bit_cast<float>(static_cast<std::uint32_t>(said[0].prices))}};
  // All wait for the slowest one.
  for (const RowWords& of_rank : said) {
    const auto merging = std::bit_cast<MergePrices>(of_rank.merging);
    trees.merging.per_row = std::max(trees.merging.per_row, merging.per_row);
    trees.merging.per_byte = std::max(trees.merging.per_byte, merging.per_byte);
  }
  const double by_switch = protocol::rounded(std::min(blocks, pairs) + trees.words);
  const double by_trees =
      protocol::rounded(seconds_by_trees(trees, static_cast<double>(in_all), call.width * element));
  return by_switch < by_trees ? std::optional(quickest) : std::nullopt;
}

}  // namespace talweg::group
