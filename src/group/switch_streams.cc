#include "group/switch_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

namespace talweg::group {

namespace {

using protocol::QueuedSum;
using protocol::SumForm;

constexpr double kMostRate = 1e15;  // bytes per second; also of what was not measured

// One number for those of all parts, which differs where one of them does, but for chance; of one part its
// own.
std::uint32_t mixed(std::uint32_t so_far, std::uint32_t next) {
  constexpr std::uint32_t kPrime = 16'777'619;
  return so_far * kPrime ^ next;
}

// Of one that is rounded() these are all.
std::uint32_t bits_of(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

// Of a vector's bytes, that travel in this form.
double share_of_bytes(SumForm form, const protocol::Held& held) {
  constexpr double kPairBytes = wire::element_bytes(wire::AggregationFormat::pairs);
  constexpr double kFloatBytes = wire::element_bytes(wire::AggregationFormat::f32);
  if (form == SumForm::pairs) return held.elements * kPairBytes / kFloatBytes;
  return form == SumForm::blocks ? held.blocks : 1;
}

// Of float, as it travels.
double rate_of(const SwitchStream::Cost& cost) {
  const double per_byte = cost.per_coded > 0 ? cost.per_coded : cost.per_byte;
  return per_byte > 1 / kMostRate ? 1 / per_byte : kMostRate;
}

}  // namespace

std::vector<std::size_t> share_ends(std::size_t elements, std::span<const double> rates) {
  // Whole numbers: they come to the same on all processors.
  constexpr double kFinest = 1 << 16;
  const double most = std::ranges::max(rates);
  std::vector<std::uint64_t> weights;
  for (const double rate : rates)
    weights.push_back(std::max<std::uint64_t>(static_cast<std::uint64_t>(rate / most * kFinest), 1));
  const std::uint64_t all = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::size_t> ends;
  std::uint64_t so_far = 0;
  for (const std::uint64_t weight : weights) {
    so_far += weight;
    const std::size_t end = elements / all * so_far + (elements % all * so_far + all - 1) / all;
    const std::size_t whole = (end + kShareElements - 1) / kShareElements * kShareElements;
    ends.push_back(std::min(whole, elements));
  }
  return ends;
}

double seconds_on_links(const forest::CostModel& model, int ranks, double bytes) {
  double least = model.capacity(0);
  for (int rank = 1; rank < ranks; ++rank) least = std::min(least, model.capacity(rank));
  return bytes / (least * model.parameters().tcp_payload);
}

// A sum's parts, in the order of the streams that are there.
struct SwitchStreams::Split : QueuedSum {
  struct Part {
    SwitchStream* stream = nullptr;
    std::shared_ptr<QueuedSum> sum;
    Share share;
    bool empty = false;  // has nothing to sum
  };
  std::vector<Part> parts;
  struct Rows {
    protocol::Rows own;
    protocol::RowSums sums;
  };
  std::vector<Rows> rows;   // of a sum of rows: what each part has
  std::vector<Part> other;  // until it is chosen: in the line of calls with a priority
  std::uint32_t other_life = 0;
};

SwitchStreams::SwitchStreams(const SwitchWish& wish, const SwitchStream::Place& place, const Logger& log,
                             const std::function<void()>& changed, bool later)
    : wish_(wish),
      place_(place),
      log_(log),
      changed_(changed),
      always_(wish.always),
      sparse_(wish.sparse),
      equal_(wish.exact),
      chooser_(place.size) {
  if (!later) open();
}

// What is the host's its first group says.
std::shared_ptr<SwitchStreams> SwitchStreams::of_part(std::span<const int> ranks, int rank,
                                                      const std::string& job, const Logger& log,
                                                      const std::function<void()>& changed) const {
  SwitchStream::Place place{rank, static_cast<int>(ranks.size()), job};
  place.speaks_for_host = false;
  place.part = true;
  if (!place_.switches.empty())
    for (const int r : ranks) place.switches.push_back(place_.switches.at(static_cast<std::size_t>(r)));
  return std::make_shared<SwitchStreams>(wish_, place, log, changed, true);
}

void SwitchStreams::open() {
  if (std::exchange(opened_, true)) return;
  try {
    open_at(streams_, place_.job);
  } catch (const std::exception& e) {  // as in open_urgent()
    log_.log(LogLevel::warn, "plan", "no {} by the switch for {}: {}",
             wish_.tolerant ? "bounded sums" : "sums", place_.name(), e.what());
  }
}

void SwitchStreams::open_at(Streams& streams, const std::string& job) const {
  for (const SwitchWish::At& at : wish_.at) {
    SwitchStream::Place own = place_;
    own.job = job;
    // Two of the addresses may be those of one switch.
    if (wish_.at.size() > 1) own.job += fmt::format("-{}", streams.size());
    own.speaks_for_host = place_.speaks_for_host && &streams == &streams_ && streams.empty();
    streams.push_back(std::make_unique<SwitchStream>(wish_, at, std::move(own), log_, changed_));
  }
}

// Those that were made stay where others cannot be: their threads may wait for who has called this.
void SwitchStreams::open_urgent() {
  if (std::exchange(urgent_tried_, true)) return;
  try {
    open_at(urgent_, place_.job + "-urgent");
  } catch (const std::exception& e) {  // no thread or no descriptor, say
    log_.log(LogLevel::warn, "plan", "calls with a priority wait for others at the switch, of {}: {}",
             place_.name(), e.what());
  }
}

void SwitchStreams::stop() {
  for (const Streams* const streams : {&streams_, &urgent_})
    for (const auto& stream : *streams) stream->halt();
  for (const Streams* const streams : {&streams_, &urgent_})
    for (const auto& stream : *streams) stream->stop();
}

std::shared_ptr<QueuedSum> SwitchStreams::line_up(bool urgent) {
  auto split = std::make_shared<Split>();
  const auto line_up_at = [&](const Streams& streams, std::vector<Split::Part>& parts) {
    std::uint32_t life = 0;
    parts.reserve(streams.size());  // what is in line is in `parts`
    for (std::uint32_t i = 0; i < streams.size(); ++i) {
      SwitchStream& stream = *streams[i];
      auto [part, cost] = stream.line_up();
      if (part == nullptr) continue;
      life = wish_.at.size() == 1 ? part->life : mixed(mixed(life, i), part->life);
      parts.push_back({&stream, std::move(part), share_of(cost)});
    }
    return life;
  };
  try {
    split->life = line_up_at(streams_, split->parts);
    if (!enough(split->parts.size())) {
      pass(*split);
      return nullptr;
    }
    if (!urgent || chooses_forms()) return split;
    open_urgent();
    split->other_life = line_up_at(urgent_, split->other);
    if (!enough(split->other.size())) pass_other(*split);
  } catch (...) {  // such as no memory: nobody will decide on what is in line
    pass(*split);
    throw;
  }
  return split;
}

// It is made by what is left.
void SwitchStreams::pass_other(Split& split) {
  for (const Split::Part& part : split.other) part.stream->pass(*part.sum);
  split.other.clear();
  split.other_life = 0;
}

SwitchStreams::Said SwitchStreams::say(const QueuedSum& sum, const protocol::SumTask& task,
                                       const protocol::SumPrices& prices) {
  if (!chooses_forms()) return {sum.life, static_cast<const Split&>(sum).other_life, {}};
  const std::uint32_t terms =
      mixed(mixed(sum.life, bits_of(prices.trees_seconds)), bits_of(prices.links_seconds));
  const protocol::VectorSample sample =
      chooser_.look(task, static_cast<const Split&>(sum).parts.front().share.cost.block);
  return {terms, chooser_.word(task, sample), sample};
}

std::optional<SumForm> SwitchStreams::choose(QueuedSum& sum, const protocol::SumTask& task,
                                             std::span<const std::uint32_t> words,
                                             const protocol::SumPrices& prices) {
  auto& split = static_cast<Split&>(sum);
  if (split.other_life != 0 && !mark_.inherited()) {
    const auto same = [&](std::uint32_t word) { return word == split.other_life; };
    if (std::ranges::all_of(words, same)) std::swap(split.parts, split.other);
    pass_other(split);
  }
  if (sparse_ == SwitchSparse::none) return SumForm::dense;
  if (sparse_ == SwitchSparse::pairs && task.format == wire::AggregationFormat::f32) return SumForm::pairs;
  if (!chooses_forms()) return SumForm::blocks;
  std::vector<Share> shares;
  for (const Split::Part& part : split.parts) shares.push_back(part.share);
  const auto seconds = [&](SumForm form, const protocol::Held& held) {
    const Estimate all = slowest(shares, task.bytes / wire::bytes_in_memory(task.format),
                                 [&](const SwitchStream::Cost& cost, std::size_t elements) {
                                   return cost.seconds(elements, task.format, form, held);
                                 });
    // Each alone was measured; all together have the ranks' own links in common.
    return all.switches > 1 ? std::max(all.seconds, prices.links_seconds * share_of_bytes(form, held))
                            : all.seconds;
  };
  return chooser_.choose(task, words, seconds, prices.trees_seconds).form;
}

void SwitchStreams::learn(const protocol::SumTask& task, const protocol::VectorSample& sample) {
  chooser_.learn(task, sample);
}

void SwitchStreams::go(QueuedSum& sum, const protocol::SumTask& task) {
  auto& split = static_cast<Split&>(sum);
  split.task = task;
  if (task.rows != nullptr) return go_rows(split);
  const std::size_t element = wire::bytes_in_memory(task.format);
  std::vector<double> rates;
  for (const Split::Part& part : split.parts) rates.push_back(part.share.rate);
  const std::vector<std::size_t> ends = share_ends(task.bytes / element, rates);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < split.parts.size(); ++i) {
    Split::Part& part = split.parts[i];
    const std::size_t end = ends[i] * element;
    part.empty = end == begin;
    if (part.empty)
      part.stream->pass(*part.sum);
    else
      part.stream->go(*part.sum, {task.in + begin, task.out + begin, end - begin, task.format, task.form,
                                  task.tolerance, task.silence_ns});
    begin = end;
  }
}

// Rows are dealt out as elements are, whole ones.
void SwitchStreams::go_rows(Split& split) {
  const protocol::Rows& all = *split.task.rows;
  std::vector<double> rates;
  for (const Split::Part& part : split.parts) rates.push_back(part.share.rate);
  const std::vector<std::size_t> ends = share_ends(all.elements(), rates);
  const std::size_t row_bytes = all.width * wire::bytes_in_memory(split.task.format);
  split.rows.resize(split.parts.size());  // they stay where they are
  std::uint64_t begin = 0;
  auto key = all.keys.begin();
  for (std::size_t i = 0; i < split.parts.size(); ++i) {
    Split::Part& part = split.parts[i];
    const std::uint64_t end = i + 1 == split.parts.size() ? all.limit : ends[i] / all.width;
    const auto next = std::lower_bound(key, all.keys.end(), all.first + static_cast<std::int64_t>(end));
    protocol::Rows& own = split.rows[i].own;
    own.keys = {key, next};
    own.values = all.values + static_cast<std::size_t>(key - all.keys.begin()) * row_bytes;
    own.limit = end - begin;
    own.width = all.width;
    own.in_all = static_cast<std::uint64_t>(static_cast<double>(all.in_all) * static_cast<double>(own.limit) /
                                            static_cast<double>(all.limit));
    own.sums = &split.rows[i].sums;
    own.first = all.first + static_cast<std::int64_t>(begin);
    part.empty = own.limit == 0;
    protocol::SumTask task = split.task;
    task.rows = &own;
    if (part.empty)
      part.stream->pass(*part.sum);
    else
      part.stream->go(*part.sum, task);
    key = next;
    begin = end;
  }
}

std::optional<protocol::RowSums::Summed> SwitchStreams::take_rows(QueuedSum& sum) {
  auto& split = static_cast<Split&>(sum);
  std::vector<protocol::RowSums::Summed> parts;
  std::size_t keys = 0;
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    if (split.parts[i].empty) continue;
    auto part = split.rows[i].sums.finish(split.rows[i].own.first);
    if (!part) return std::nullopt;
    keys += part->keys.size();
    parts.push_back(std::move(*part));
  }
  if (parts.size() == 1) return std::move(parts.front());
  const std::size_t row_bytes = split.task.rows->width * wire::bytes_in_memory(split.task.format);
  protocol::RowSums::Summed all;
  all.keys.reserve(keys);
  all.values = std::make_unique_for_overwrite<std::byte[]>(keys * row_bytes);
  for (const auto& part : parts) {
    std::memcpy(all.values.get() + all.keys.size() * row_bytes, part.values.get(),
                part.keys.size() * row_bytes);
    all.keys.insert(all.keys.end(), part.keys.begin(), part.keys.end());
  }
  return all;
}

double SwitchStreams::seconds_of_rows(const QueuedSum& sum, double rows, std::size_t width,
                                      wire::AggregationFormat format, SumForm form, double on_links) {
  double rates = 0, most = 0;
  const auto& parts = static_cast<const Split&>(sum).parts;
  for (const Split::Part& part : parts) rates += part.share.rate;
  for (const Split::Part& part : parts)
    most =
        std::max(most, part.share.cost.seconds_of_rows(rows * part.share.rate / rates, width, format, form));
  if (parts.size() == 1) return most;
  const double bytes = rows * static_cast<double>(width * wire::bytes_in_memory(format));
  return std::max(most, on_links * bytes * share_of_bytes(form, {1, 1}));
}

void SwitchStreams::pass(QueuedSum& sum) {
  if (mark_.inherited()) return;
  auto& split = static_cast<Split&>(sum);
  for (const Split::Part& part : split.parts) part.stream->pass(*part.sum);
  pass_other(split);
}

void SwitchStreams::abandon(QueuedSum& sum) {
  if (mark_.inherited()) return;
  const auto& split = static_cast<const Split&>(sum);
  const auto& parts = split.parts;
  for (const Split::Part& part : parts)
    if (!part.empty) part.stream->abandon(*part.sum);
  for (const Split::Part& part : split.other) part.stream->abandon(*part.sum);
  for (const Split::Part& part : parts) part.sum->kept.give_back();
}

SwitchStreams::Progress SwitchStreams::look(const QueuedSum& sum) const {
  Progress all{QueuedSum::State::done, 0};
  const auto& parts = static_cast<const Split&>(sum).parts;
  for (const Split::Part& part : parts) {
    if (part.empty) continue;
    const auto [state, number] = part.stream->look(*part.sum);
    if (state == QueuedSum::State::failed) return {state, 0};
    if (state != QueuedSum::State::done) all.state = QueuedSum::State::running;
    all.number = parts.size() == 1 ? number : mixed(all.number, number);
  }
  return all;
}

protocol::SumLosses SwitchStreams::losses(const QueuedSum& sum) {
  protocol::SumLosses all;
  const auto& split = static_cast<const Split&>(sum);
  const std::size_t element = wire::element_bytes(split.task.format);
  for (const Split::Part& part : split.parts)
    if (!part.empty)
      protocol::add_losses(all, part.sum->losses,
                           static_cast<std::size_t>(part.sum->task.in - split.task.in) / element);
  return all;
}

std::uint64_t SwitchStreams::most_missing(std::size_t elements, std::uint32_t ppm) const {
  std::vector<Share> shares;
  std::vector<double> rates;
  for (const auto& stream : streams_)
    if (const auto cost = stream->cost()) {
      shares.push_back(share_of(*cost));
      rates.push_back(shares.back().rate);
    }
  if (!enough(shares.size())) return 0;
  const std::vector<std::size_t> ends = share_ends(elements, rates);
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    protocol::Sum part;
    part.count = ends[i] - (i == 0 ? 0 : ends[i - 1]);
    part.block = static_cast<std::uint16_t>(shares[i].cost.block);
    part.lanes = static_cast<std::uint16_t>(shares[i].cost.lanes);
    part.tolerance.ppm = ppm;
    for (; part.lane < part.lanes; ++part.lane)
      most += protocol::blocks_that_may_be_missing(part) * part.block;
  }
  return most;
}

std::uint32_t SwitchStreams::exact_sums() const {
  std::uint32_t most = 0;
  for (const auto& stream : streams_)
    if (const auto cost = stream->cost()) most = std::max(most, cost->exact);
  return most;
}

bool SwitchStreams::enough(std::size_t there) const {
  return equal_ ? there == wish_.at.size() : there > 0;
}

std::optional<SwitchStreams::Estimate> SwitchStreams::estimate(std::size_t elements,
                                                               wire::AggregationFormat format,
                                                               bool least) const {
  std::vector<Share> shares;
  for (const auto& stream : streams_)
    if (const auto cost = stream->cost()) shares.push_back(share_of(*cost));
  if (!enough(shares.size())) return std::nullopt;
  return slowest(shares, elements, [&](const SwitchStream::Cost& cost, std::size_t of_one) {
    return cost.seconds(least && chooses_forms() ? 0 : of_one, format, SumForm::dense, {});
  });
}

SwitchStreams::Share SwitchStreams::share_of(const SwitchStream::Cost& cost) const {
  return {cost, equal_ ? 1 : rate_of(cost)};
}

SwitchStreams::Estimate SwitchStreams::slowest(std::span<const Share> shares, std::size_t elements,
                                               const SecondsOf& seconds_of) {
  std::vector<double> rates;
  for (const Share& share : shares) rates.push_back(share.rate);
  const std::vector<std::size_t> ends = share_ends(elements, rates);
  Estimate estimate;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
    if (ends[i] == begin) continue;
    ++estimate.switches;
    estimate.seconds = std::max(estimate.seconds, seconds_of(shares[i].cost, ends[i] - begin));
  }
  return estimate;
}

std::uint64_t SwitchStreams::lives() const {
  std::uint64_t all = 0;
  for (const auto& stream : streams_) all += stream->lives();
  return all;
}

std::size_t SwitchStreams::block() const {
  for (const auto& stream : streams_)
    if (const auto cost = stream->cost()) return cost->block;
  return 0;
}

std::string SwitchStreams::describe() const {
  std::string text;
  for (std::size_t i = streams_.size(); i < wish_.at.size(); ++i)
    text += fmt::format("{}{}; not now: {}", text.empty() ? "" : "; ",
                        SwitchStream::describe(wish_, wish_.at[i], 0),
                        opened_ ? "the system has refused it" : "it is joined for the first all_reduce");
  for (const auto& stream : streams_) text += (text.empty() ? "" : "; ") + stream->describe();
  for (const auto& stream : urgent_) text += "; of calls with a priority: " + stream->describe();
  if (!chooses_forms()) return text;
  text += "; chosen:";
  const auto& chosen = chooser_.chosen();
  for (int form = 0; form < protocol::kSumForms; ++form)
    text += fmt::format(" {} {},", chosen[static_cast<std::size_t>(form)], name(static_cast<SumForm>(form)));
  return text + fmt::format(" {} by trees", chosen[protocol::kSumForms]);
}

SwitchStream::Traffic SwitchStreams::traffic() const {
  SwitchStream::Traffic all;
  for (const Streams* const streams : {&streams_, &urgent_})
    for (const auto& stream : *streams) all += stream->traffic();
  return all;
}

}  // namespace talweg::group
