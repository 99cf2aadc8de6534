#include "study/plan_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "base/at.h"
#include "base/collectives.h"
#include "base/units.h"
#include "forest/cost.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "study/choices.h"
#include "study/side_by_side.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using forest::Bound;
using forest::Certificate;

// What one worker's links carry bounds every collective: the narrowest of them, in time linear in the
// network.
class NarrowestWorker {
 public:
  NarrowestWorker(const cluster::Cluster& network, Collective op, forest::NodeId root)
      : network_(network), op_(op), root_(root) {}

  Bound find() {
    best_.op = op_;
    best_.root = root_;
    best_.rate = forest::Ratio(1, 0);
    const int workers = network_.workers();
    std::vector<std::int64_t> in(network_.nodes.size()), out(network_.nodes.size());
    for (const cluster::Link& link : network_.links) {
      const auto capacity = static_cast<std::int64_t>(link.capacity.bits_per_second);
      out[at(link.from)] += capacity;
      in[at(link.to)] += capacity;
    }
    for (int worker = 0; worker < workers && workers > 1; ++worker) {
      offer(worker, false, in[at(worker)], down_share(worker));
      offer(worker, true, out[at(worker)], up_share(worker));
    }
    return best_;
  }

 private:
  // Of the vector, in parts of one rank's, what a worker must take in; out of `workers` parts.
  std::int64_t down_share(int worker) const {
    const int workers = network_.workers();
    if (facts(op_).rooted) return (worker == root_) == (op_ == Collective::reduce) ? workers : 0;
    if (op_ == Collective::reduce_scatter) return 1;
    return op_ == Collective::all_gather ? workers - 1 : workers;
  }
  // What leaves it: in a collective that goes the other way, the same comes in.
  std::int64_t up_share(int worker) const {
    const int workers = network_.workers();
    if (facts(op_).rooted) return workers - down_share(worker);
    if (op_ == Collective::all_gather) return 1;
    return op_ == Collective::reduce_scatter ? workers - 1 : workers;
  }

  void offer(int worker, bool leaving, std::int64_t capacity, std::int64_t share) {
    const int workers = network_.workers();
    if (share == 0 || capacity > std::numeric_limits<std::int64_t>::max() / workers) return;
    const forest::Ratio rate(capacity * workers, share);
    if (rate.value() >= best_.rate.value()) return;
    best_.rate = rate;
    Certificate certificate{Certificate::Kind::cut, {{}, {}}, {}, {}};
    for (std::size_t node = 0; node < network_.nodes.size(); ++node)
      certificate.parts[(static_cast<int>(node) == worker) == leaving ? 0 : 1].push_back(
          static_cast<int>(node));
    for (const cluster::Link& link : network_.links)
      certificate.link_prices.push_back((leaving ? link.from : link.to) == worker ? 1 : 0);
    certificate.group_prices.resize(network_.groups.size());
    best_.certificate = std::move(certificate);
  }

  const cluster::Cluster& network_;
  Collective op_;
  forest::NodeId root_;
  Bound best_;
};

bool has_bound(Collective op) {
  constexpr Collective kBounded[] = {Collective::all_reduce, Collective::reduce, Collective::broadcast,
                                     Collective::reduce_scatter, Collective::all_gather};
  return std::find(std::begin(kBounded), std::end(kBounded), op) != std::end(kBounded);
}

Json to_json(const Bound& bound) {
  const Certificate& proof = bound.certificate;
  return {bound.rate.numerator, bound.rate.denominator, bound.attained,    static_cast<int>(proof.kind),
          proof.parts,          proof.link_prices,      proof.group_prices};
}

void read(const Json& text, Bound& bound) {
  bound.rate.numerator = text[0];
  bound.rate.denominator = text[1];
  bound.attained = text[2];
  bound.certificate.kind = static_cast<Certificate::Kind>(text[3].get<int>());
  text[4].get_to(bound.certificate.parts);
  text[5].get_to(bound.certificate.link_prices);
  text[6].get_to(bound.certificate.group_prices);
}

// Why a planner is not asked for a size; empty if it is.
std::string left_out(const forest::Planner& planner, const forest::Request& request, bool named) {
  if (!planner.suits(request)) return "it is not meant for requests of this size";
  if (!named && !planner.quick(request))
    return fmt::format("it may take long among {} ranks: ask for it by name (--algo {})", request.ranks,
                       planner.name);
  return {};
}

// Who is taken in one row, and what is missing to know it.
class Taker {
 public:
  Taker(const forest::CostModel& model, const Study& study, const StudyRow& row)
      : model_(model), study_(study), row_(row) {}

  // Into Study::planners; -1 if nobody can.
  int find() { return study_.all_planners ? taken_by_group() : least(); }
  // Those that might have won and were not done.
  const std::set<std::string>& missing() const { return missing_; }

 private:
  // Infinity where there never are any.
  double seconds(std::size_t planner) {
    const Prediction& prediction = row_.predictions[planner];
    if (prediction.not_done) missing_.insert(study_.planners[planner]);
    return prediction.seconds.value_or(std::numeric_limits<double>::infinity());
  }

  int taken_by_group() {
    const auto index = [this](const std::string& name) {
      return static_cast<std::size_t>(std::ranges::find(study_.planners, name) - study_.planners.begin());
    };
    const forest::Request request = request_of(study_.op, study_.root, study_.ranks, row_.bytes);
    const std::size_t best = index(forest::best_planner(request, model_, [&](const std::string& name) {
      return forest::Offer{seconds(index(name)), row_.predictions[index(name)].flows};
    }));
    // It may have been chosen without.
    return std::isfinite(seconds(best)) ? static_cast<int>(best) : -1;
  }

  int least() {
    int best = -1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t planner = 0; planner < study_.planners.size(); ++planner) {
      const double its = seconds(planner);
      if (its >= least) continue;
      best = static_cast<int>(planner);
      least = its;
    }
    return best;
  }

  const forest::CostModel& model_;
  const Study& study_;
  const StudyRow& row_;
  std::set<std::string> missing_;
};

// Everything that may take long, each in a process of its own: the bound, and every planner's predictions.
// Large sizes come first: most depends on them, should time run out.
class Pieces {
 public:
  Pieces(const cluster::Cluster& network, const StudyRequest& request, Study& result)
      : network_(network), patience_(request.patience), result_(result) {}

  void run() {
    const bool bound = has_bound(result_.op), predictions = !result_.rows.empty();
    const auto begin = std::chrono::steady_clock::now();
    if (bound)
      pieces_.emplace_back([this](const HandOver& hand_over) {
        hand_over(to_json(forest::best_rate(network_, result_.op, result_.root)).dump());
      });
    if (predictions) {
      model_.emplace(network_);  // here, so that all processes share its memory
      for (const std::string& planner : result_.planners)
        pieces_.emplace_back([this, &planner](const HandOver& hand_over) {
          predict(forest::find_planner(planner), hand_over);
        });
    }
    const std::vector<WorkResult> done = side_by_side(pieces_, patience_, begin);
    auto next = done.begin();
    if (bound) read_bound(*next++);
    if (!predictions) return;
    for (std::size_t planner = 0; planner < result_.planners.size(); ++planner)
      read_predictions(planner, *next++);
    mark_taken(*model_, result_);
  }

 private:
  forest::Request request_for_row(std::size_t row) const {
    return request_of(result_.op, result_.root, result_.ranks, result_.rows[row].bytes);
  }

  void predict(const forest::Planner& planner, const HandOver& hand_over) const {
    forest::PackingMemo memo;
    for (std::size_t row = result_.rows.size(); row-- > 0;) {
      const forest::Request request = request_for_row(row);
      if (const std::string why = left_out(planner, request, !result_.all_planners); !why.empty()) {
        hand_over(why);
        continue;
      }
      try {
        const forest::Forest forest = forest::plan_by(planner, request, *model_, memo);
        const forest::Offer offer = forest::offer(forest, *model_);
        hand_over(Json{offer.seconds, forest::aggregator_names(forest, network_), offer.flows}.dump());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        hand_over(error.what());
      }
    }
  }

  void read_bound(const WorkResult& done) {
    result_.bound = NarrowestWorker(network_, result_.op, result_.root).find();
    if (done.failure.empty()) return read(Json::parse(done.lines[0]), *result_.bound);
    result_.notes.push_back(fmt::format(
        "the bound is that of the narrowest worker alone; the search for a closer one: {}", done.failure));
  }

  void read_predictions(std::size_t planner, const WorkResult& done) {
    std::size_t row = result_.rows.size();
    const forest::Planner& its = forest::find_planner(result_.planners[planner]);
    for (const std::string& line : done.lines) {
      Prediction& prediction = result_.rows[--row].predictions[planner];
      if (line.starts_with('[')) {
        const Json found = Json::parse(line);
        prediction.seconds = found[0].get<double>();
        found[1].get_to(prediction.through);
        found[2].get_to(prediction.flows);
      } else {
        prediction.reason = line;
      }
    }
    if (row > 0)
      result_.notes.push_back(fmt::format("{}: {}{}", its.name, done.failure,
                                          done.lines.empty() ? "" : "; the smaller sizes are left out"));
    else if (result_.all_planners && !its.quick(request_for_row(0)))
      result_.notes.push_back(fmt::format("{}: {}", its.name, done.lines.front()));
    while (row-- > 0) {
      Prediction& prediction = result_.rows[row].predictions[planner];
      prediction.reason = done.failure;
      prediction.not_done = true;
    }
  }

  const cluster::Cluster& network_;
  double patience_;
  Study& result_;
  std::optional<forest::CostModel> model_;
  std::vector<Work> pieces_;
};

}  // namespace

const char* taken_text(const Study& study) {
  return study.all_planners ? "what a group takes" : "the quickest of these";
}

std::string size_text(const Study& study, const StudyRow& row) {
  return study.op == Collective::barrier ? "-" : to_string(Bytes{row.bytes});
}

forest::Request request_of(Collective op, forest::NodeId root, int ranks, std::int64_t bytes) {
  forest::Request request = request_for(op, ranks, static_cast<std::size_t>(bytes));
  request.root = root;
  return request;
}

void mark_taken(const forest::CostModel& model, Study& study) {
  std::set<std::string> missing;
  const StudyRow* largest = nullptr;
  for (auto row = study.rows.rbegin(); row != study.rows.rend(); ++row) {
    Taker taker(model, study, *row);
    const int taken = taker.find();
    row->taken = taker.missing().empty() ? taken : -1;
    if (taker.missing().empty()) continue;
    if (largest == nullptr) largest = &*row;
    missing.insert(taker.missing().begin(), taker.missing().end());
  }
  if (largest == nullptr) return;
  const bool all = largest == &study.rows.back();
  study.notes.push_back(fmt::format("{}none is marked (*) as {}: not known of {}; more --patience may tell",
                                    all ? "" : fmt::format("from {} down, ", size_text(study, *largest)),
                                    taken_text(study), fmt::join(missing, ", ")));
}

forest::Forest plan_for(const cluster::Cluster& network, const forest::Request& request,
                        const std::string& planner) {
  return planner.empty() ? forest::plan_best(request, network)
                         : forest::find_planner(planner).plan(request, network);
}

std::int64_t request_bytes(const forest::Request& request) {
  return std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0}) *
         request.element_size;
}

std::optional<double> rate_of(const Study& study, const StudyRow& row, std::size_t planner) {
  const auto& seconds = row.predictions[planner].seconds;
  if (!seconds || *seconds <= 0) return {};
  const std::int64_t all = request_bytes(request_of(study.op, study.root, study.ranks, row.bytes));
  // Of an all-to-all the size is one rank's row, here and in every other table.
  const std::int64_t bytes = study.op == Collective::all_to_all ? all / study.ranks : all;
  if (bytes == 0) return {};
  return 8 * static_cast<double>(bytes) / *seconds;
}

std::optional<double> part_of_bound(const Study& study, const StudyRow& row, std::size_t planner) {
  const auto rate = rate_of(study, row, planner);
  if (!rate || !study.bound || study.bound->rate.denominator == 0) return {};
  return *rate / study.bound->rate.value();
}

std::optional<forest::Bound> bound_within(const cluster::Cluster& network, Collective op, forest::NodeId root,
                                          double seconds) {
  if (!has_bound(op)) return {};
  if (network.nodes.size() > kMostNodesToPlan) return NarrowestWorker(network, op, root).find();
  Study found;
  found.op = op;
  found.root = root;
  found.ranks = network.workers();
  StudyRequest request;
  request.patience = seconds;
  Pieces(network, request, found).run();
  return found.bound;
}

Study study_plans(const cluster::Cluster& network, const StudyRequest& request) {
  Study result;
  result.op = request.op;
  result.root = request.root;
  result.ranks = network.workers();
  const forest::Request asked = request_of(request.op, request.root, result.ranks, request.sizes.front());
  forest::validate(asked);
  result.all_planners = request.only.empty();
  for (const forest::Planner& planner : forest::planners()) {
    if (!planner.serves(asked))
      result.others.push_back(planner.name);
    else if (result.all_planners || std::ranges::count(request.only, planner.name) > 0)
      result.planners.push_back(planner.name);
  }
  if (!has_bound(request.op)) result.no_bound = fmt::format("no bound is known for {}", name(request.op));
  if (network.nodes.size() > kMostNodesToPlan) {
    const std::string limit = fmt::format(
        "times are predicted for networks of up to {} nodes, and this one has {}: write several "
        "switches as one, or see talweg simulate",
        kMostNodesToPlan, network.nodes.size());
    if (!has_bound(request.op) || !result.all_planners) throw Error(ErrorCode::invalid_argument, limit);
    result.bound = NarrowestWorker(network, request.op, request.root).find();
    result.notes.push_back("the bound is that of the narrowest worker alone; " + limit);
    return result;
  }
  for (const std::int64_t bytes : request.sizes)
    result.rows.push_back({bytes, std::vector<Prediction>(result.planners.size()), -1});
  Pieces(network, request, result).run();
  return result;
}

}  // namespace talweg::study
