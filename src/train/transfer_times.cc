#include "train/transfer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"

namespace talweg::train {
namespace {

constexpr double kRounding = 1e-9;  // of a time, by which a fitted piece may miss 0 at its first byte

double value_at(const TransferTimes::Piece& piece, double bytes) {
  return piece.startup + piece.per_byte * bytes;
}

void check(const std::vector<TransferTimes::Piece>& pieces) {
  if (pieces.empty() || pieces.front().from != 0)
    refuse("transfer times: the first piece must begin at 0 bytes");
  double last = -1;
  for (const auto& piece : pieces) {
    if (!std::isfinite(piece.from) || !std::isfinite(piece.startup) || !std::isfinite(piece.per_byte))
      refuse("transfer times: a number is not finite");
    if (piece.from <= last) refuse("transfer times: the pieces must ascend");
    if (piece.per_byte < 0) refuse("transfer times: a larger call cannot take less time");
    if (value_at(piece, piece.from) < -kRounding) refuse("transfer times: a time is below 0");
    last = piece.from;
  }
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// By size, one for each: the median.
std::vector<Sample> medians(std::span<const Sample> samples) {
  std::vector<Sample> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted, {}, &Sample::bytes);
  std::vector<Sample> result;
  for (std::size_t i = 0; i < sorted.size();) {
    std::vector<double> of_size;
    const double bytes = sorted[i].bytes;
    for (; i < sorted.size() && sorted[i].bytes == bytes; ++i) of_size.push_back(sorted[i].seconds);
    result.push_back({bytes, median_of(std::move(of_size))});
  }
  return result;
}

const TransferTimes::Piece& piece_at(const std::vector<TransferTimes::Piece>& pieces, double bytes) {
  return *(std::ranges::upper_bound(pieces, bytes, {}, &TransferTimes::Piece::from) - 1);
}

double time_of(const std::vector<TransferTimes::Piece>& pieces, double bytes) {
  return std::max(0.0, value_at(piece_at(pieces, bytes), bytes));
}

std::vector<TransferTimes::Piece> scaled_pieces(std::vector<TransferTimes::Piece> pieces, double startup,
                                                double per_byte) {
  // What a piece's start-up is below 0 by belongs to its rate: the line is held where the piece begins.
  const double first = pieces.front().startup;
  for (TransferTimes::Piece& piece : pieces) {
    const double begin = first * startup + (value_at(piece, piece.from) - first) * per_byte;
    piece.per_byte *= per_byte;
    piece.startup = std::max(begin, 0.0) - piece.per_byte * piece.from;
  }
  return pieces;
}

// At each size the longer time of two, or the shorter.
std::vector<TransferTimes::Piece> merged_pieces(const std::vector<TransferTimes::Piece>& a,
                                                const std::vector<TransferTimes::Piece>& b, bool longer) {
  const double sign = longer ? 1 : -1;
  std::vector<double> begins;
  for (const auto* pieces : {&a, &b})
    for (const TransferTimes::Piece& piece : *pieces) begins.push_back(piece.from);
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  std::vector<TransferTimes::Piece> result;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const double from = begins[i];
    const double to = i + 1 < begins.size() ? begins[i + 1] : std::numeric_limits<double>::infinity();
    TransferTimes::Piece taken = piece_at(a, from), other = piece_at(b, from);
    const double ahead = sign * (value_at(taken, from) - value_at(other, from));
    const double gain = sign * (other.per_byte - taken.per_byte);
    if (ahead < 0 || (ahead == 0 && gain > 0)) std::swap(taken, other);
    result.push_back({from, taken.startup, taken.per_byte});
    if (sign * (other.per_byte - taken.per_byte) <= 0) continue;
    const double meet = (taken.startup - other.startup) / (other.per_byte - taken.per_byte);
    if (meet > from && meet < to) result.push_back({meet, other.startup, other.per_byte});
  }
  return result;
}

std::string piece_text(const TransferTimes::Piece& piece) {
  if (piece.per_byte == 0) return fmt::format("{:.4g} us, whatever its size", piece.startup * 1e6);
  return fmt::format("{:.4g} us + {:.3g} ns/B", piece.startup * 1e6, piece.per_byte * 1e9);
}

}  // namespace

TransferTimes::TransferTimes(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  check(pieces_);
}

double TransferTimes::seconds(double bytes) const {
  return bytes <= 0 ? 0 : time_of(pieces_, bytes);
}

double TransferTimes::startup_of(double bytes) const {
  const double all = seconds(bytes);
  if (in_turn_.empty()) return std::min(startup(), all);
  return bytes <= 0 ? 0 : std::max(0.0, all - time_of(in_turn_, bytes));
}

bool TransferTimes::has_rate() const {
  return std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.per_byte > 0; });
}

TransferTimes TransferTimes::scaled(double startup, double per_byte) const {
  TransferTimes result(scaled_pieces(pieces_, startup, per_byte));
  if (!in_turn_.empty()) result.in_turn_ = scaled_pieces(in_turn_, startup, per_byte);
  return result;
}

TransferTimes TransferTimes::merged(const TransferTimes& other, bool longer) const {
  TransferTimes result(merged_pieces(pieces_, other.pieces_, longer));
  if (!in_turn_.empty())
    result.in_turn_ =
        merged_pieces(in_turn_, other.in_turn_.empty() ? other.pieces_ : other.in_turn_, longer);
  return result;
}

TransferTimes TransferTimes::at_least(const TransferTimes& least) const {
  return merged(least, true);
}

TransferTimes TransferTimes::at_most(const TransferTimes& most) const {
  return merged(most, false);
}

TransferTimes TransferTimes::in_turn(const TransferTimes& part) const {
  TransferTimes result = *this;
  result.in_turn_ = part.pieces_;
  return result;
}

TransferTimes TransferTimes::with_call(double seconds) const {
  if (in_turn_.empty()) return *this;
  std::vector<Piece> part = in_turn_;
  for (Piece& piece : part) piece.startup += seconds;
  return at_least(TransferTimes(part)).in_turn(TransferTimes(part));
}

TransferTimes linear_times(double startup, double per_byte) {
  return TransferTimes({{0, startup, per_byte}});
}

TransferTimes table_times(std::span<const Sample> samples) {
  if (samples.empty()) refuse("a table of transfer times needs a sample");
  for (const Sample& sample : samples)
    if (!std::isfinite(sample.bytes) || !std::isfinite(sample.seconds) || sample.bytes < 0 ||
        sample.seconds < 0)
      refuse("a table of transfer times: a sample is negative or not finite");
  const std::vector<Sample> points = medians(samples);
  std::vector<TransferTimes::Piece> pieces{{0, points.front().seconds, 0}};
  double time = points.front().seconds;  // noise may have a larger size take less: times never fall
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const double from = points[i].bytes;
    const double next = std::max(time, points[i + 1].seconds);
    const double slope = (next - time) / (points[i + 1].bytes - from);
    const TransferTimes::Piece piece{from, time - slope * from, slope};
    if (from == 0)
      pieces.back() = piece;
    else
      pieces.push_back(piece);
    time = next;
  }
  return TransferTimes(std::move(pieces));
}

std::string to_string(const TransferTimes& times) {
  const auto& pieces = times.pieces();
  if (pieces.size() == 1) return piece_text(pieces.front());
  return fmt::format("{}, from {} on {}", piece_text(pieces.front()),
                     to_string(Bytes{static_cast<std::int64_t>(pieces.back().from)}),
                     piece_text(pieces.back()));
}

const TransferTimes& NetworkTimes::of(Collective op) const {
  switch (op) {
    case Collective::all_reduce:
      return all_reduce;
    case Collective::reduce_scatter:
      return reduce_scatter;
    case Collective::all_gather:
      return all_gather;
    default:
      throw_error(ErrorCode::unsupported, "no transfer times are kept of {}", talweg::name(op));
  }
}

NetworkTimes NetworkTimes::with_call(double seconds) const {
  NetworkTimes other = *this;
  const auto add = [seconds](auto& times) {
    for (TransferTimes* each : {&times.all_reduce, &times.reduce_scatter, &times.all_gather})
      *each = each->with_call(seconds);
  };
  add(other);
  add(other.least);
  if (other.links) add(*other.links);
  return other;
}

NetworkTimes NetworkTimes::with_bandwidth(double by) const {
  if (!(by > 0)) refuse("a bandwidth is scaled by a number above 0");
  if (by == 1) return *this;
  NetworkTimes other = *this;
  other.name = fmt::format("{}, bandwidth x {:.4g}", name, by);
  other.burst /= by;
  const auto changed = [by](const TransferTimes& now, const TransferTimes& least_of_it) {
    return now.scaled(1, 1 / by).at_least(least_of_it);
  };
  if (links)
    other.links = {changed(links->all_reduce, {}), changed(links->reduce_scatter, {}),
                   changed(links->all_gather, {})};
  if (links && by < 1) {
    other.all_reduce = all_reduce.at_least(other.links->all_reduce);
    other.reduce_scatter = reduce_scatter.at_least(other.links->reduce_scatter);
    other.all_gather = all_gather.at_least(other.links->all_gather);
  } else {
    other.all_reduce = changed(all_reduce, least.all_reduce);
    other.reduce_scatter = changed(reduce_scatter, least.reduce_scatter);
    other.all_gather = changed(all_gather, least.all_gather);
  }
  return other;
}

NetworkTimes network_of(const std::string& name, int ranks, const TransferTimes& all_reduce) {
  const TransferTimes half = all_reduce.scaled(0.5, 0.5);
  return {name, ranks, all_reduce, half, half};
}

NetworkTimes no_network(int ranks) {
  return {.name = "no network", .ranks = ranks};
}

NetworkTimes at_ranks(const NetworkTimes& network, int ranks, Growth growth) {
  if (ranks < 1) refuse("there is at least one rank, not {}", ranks);
  if (ranks == network.ranks) return network;
  if (ranks == 1) return no_network(1);
  if (network.ranks < 2) refuse("times of one rank say nothing about {}", ranks);
  const double from = network.ranks, to = ranks;
  const double startup = growth == Growth::ring ? (to - 1) / (from - 1) : std::log2(to) / std::log2(from);
  const double per_byte = growth == Growth::ring ? ((to - 1) / to) / ((from - 1) / from) : 1;
  NetworkTimes other = network;
  other.ranks = ranks;
  std::vector<TransferTimes*> all{&other.all_reduce,           &other.reduce_scatter,
                                  &other.all_gather,           &other.least.all_reduce,
                                  &other.least.reduce_scatter, &other.least.all_gather};
  if (other.links)
    all.insert(all.end(), {&other.links->all_reduce, &other.links->reduce_scatter, &other.links->all_gather});
  for (TransferTimes* times : all) *times = times->scaled(startup, per_byte);
  return other;
}

}  // namespace talweg::train
