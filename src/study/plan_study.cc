#include "study/plan_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
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
#include "sim/bounded_sums.h"
#include "study/by_bounded_loss.h"
#include "study/by_switch.h"
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
    const std::int64_t workers = network_.workers();
    switch (op_) {
      case Collective::reduce:
        return worker == root_ ? workers : 0;
      case Collective::broadcast:
        return worker == root_ ? 0 : workers;
      case Collective::gather:
        return worker == root_ ? workers - 1 : 0;
      case Collective::scatter:
        return worker == root_ ? 0 : 1;
      case Collective::reduce_scatter:
        return 1;
      case Collective::all_gather:
      case Collective::all_to_all:
        return workers - 1;
      default:
        return workers;
    }
  }
  // What leaves it: in a collective that goes the other way, the same comes in.
  std::int64_t up_share(int worker) const {
    const std::int64_t workers = network_.workers();
    switch (op_) {
      case Collective::reduce:
      case Collective::broadcast:
        return workers - down_share(worker);
      case Collective::gather:
        return worker == root_ ? 0 : 1;
      case Collective::scatter:
        return worker == root_ ? workers - 1 : 0;
      case Collective::all_gather:
        return 1;
      case Collective::reduce_scatter:
      case Collective::all_to_all:
        return workers - 1;
      default:
        return workers;
    }
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

// Into Study::planners; their number where it is none of them.
std::size_t index_of(const Study& study, const std::string& planner) {
  return static_cast<std::size_t>(std::ranges::find(study.planners, planner) - study.planners.begin());
}

// Of all planners what a group takes; of those that were asked for the quickest.
forest::Choice choice_of(const forest::CostModel& model, const Study& study, const StudyRow& row) {
  const auto offered = [&](const std::string& planner) {
    const Prediction& its = row.predictions[index_of(study, planner)];
    return forest::Offer{its.seconds.value_or(std::numeric_limits<double>::infinity()), its.flows, its.reason,
                         its.not_done};
  };
  forest::Choice choice;
  if (study.all_planners) {
    choice = forest::choose(request_of(study.op, study.root, study.ranks, row.bytes), model, offered);
    // A planner that is the only one is taken unasked.
    if (!choice.taken.empty() && offered(choice.taken).may_come) choice.missing = {choice.taken};
    return choice;
  }
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& planner : study.planners) {
    const forest::Offer its = offered(planner);
    if (its.may_come) choice.missing.push_back(planner);
    if (its.seconds >= least) continue;
    choice.taken = planner;
    least = its.seconds;
  }
  return choice;
}

// Everything that may take long, each in a process of its own: the bound, and every planner's predictions.
// Large sizes come first: most depends on them, should time run out.
class Pieces {
 public:
  Pieces(const cluster::Cluster& network, const StudyRequest& request, Study& result,
         const std::function<void(const StudyProgress&)>& look)
      : network_(network),
        patience_(request.patience),
        servers_(request.servers),
        result_(result),
        look_(look) {}

  void run() {
    const bool bound = result_.no_bound.empty(), predictions = !result_.rows.empty();
    const auto begin = std::chrono::steady_clock::now();
    if (bound)
      pieces_.emplace_back([this](const HandOver& hand_over) {
        hand_over(to_json(forest::best_rate(network_, result_.op, result_.root)).dump());
      });
    if (predictions) {
      model_.emplace(network_);  // here, so that all processes share its memory
      for (const std::string& planner : result_.planners)
        pieces_.emplace_back([this, &planner](const HandOver& hand_over) { predict(planner, hand_over); });
    }
    Look look;
    if (look_) look = [&](const std::vector<WorkState>& states) { look_(progress_of(states, bound)); };
    const std::vector<WorkResult> done = side_by_side(pieces_, patience_, begin, SIZE_MAX, look);
    auto next = done.begin();
    if (bound) read_bound(*next++);
    if (!predictions) return;
    for (std::size_t planner = 0; planner < result_.planners.size(); ++planner)
      read_predictions(planner, *next++);
    mark_taken(*model_, result_);
    if (result_.all_planners && result_.op == Collective::all_reduce) predict_switches();
  }

 private:
  void predict_switches() {
    sim::SwitchSumsOptions how;
    how.switches = summing_nodes(network_);
    how.racks = summing_racks(network_);
    if (how.switches.empty() || result_.ranks + std::ssize(how.switches) > 0xffff) return;
    const sim::SwitchJob job = sim::switch_job(how, {}, result_.ranks);
    for (StudyRow& row : result_.rows) row.by_switch = predict_switch(*model_, row.bytes, DataType::f32, job);
  }

  forest::Request request_for_row(std::size_t row) const {
    return request_of(result_.op, result_.root, result_.ranks, result_.rows[row].bytes);
  }

  static std::string words(double seconds, const std::vector<std::string>& through, int flows,
                           const forest::Breakdown& spent) {
    return Json{seconds,
                through,
                flows,
                {spent.links, spent.processors, spent.latency, spent.without},
                static_cast<int>(spent.limit),
                spent.reason}
        .dump();
  }

  void predict(const std::string& name, const HandOver& hand_over) const {
    const forest::Planner& planner = planner_of(name);
    forest::PackingMemo memo;
    for (std::size_t row = result_.rows.size(); row-- > 0;) {
      const forest::Request request = request_for_row(row);
      if (const std::string why = planner.why_not(request); !why.empty()) {
        hand_over(why);
        continue;
      }
      try {
        forest::WorkLimit limit(forest::kMostSteps);  // as for a group, but for those that are named
        if (name == sim::kBounded) {
          const Prediction its = predict_bounded(request, *model_, servers_, memo);
          hand_over(words(*its.seconds, {}, its.flows, its.breakdown));
          continue;
        }
        const forest::Forest forest =
            forest::plan_by(planner, request, *model_, memo, result_.all_planners ? &limit : nullptr);
        const forest::Offer offer = forest::offer(forest, *model_);
        hand_over(words(offer.seconds, forest::aggregator_names(forest, network_), offer.flows,
                        model_->breakdown(forest)));
      } catch (const forest::WorkLimit::Reached&) {
        hand_over(forest::too_much_work(forest::kMostSteps));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        hand_over(error.what());
      }
    }
  }

  StudyProgress progress_of(const std::vector<WorkState>& states, bool bound) const {
    StudyProgress progress;
    const std::size_t rows = result_.rows.size();
    progress.all = rows * result_.planners.size();
    for (std::size_t i = 0; i < states.size(); ++i) {
      const bool is_bound = bound && i == 0;
      if (!is_bound) progress.done += states[i].ended ? rows : std::min(rows, states[i].lines);
      if (!states[i].ended)
        progress.under_way.push_back(is_bound ? "the bound" : result_.planners[i - (bound ? 1 : 0)]);
    }
    return progress;
  }

  void read_bound(const WorkResult& done) {
    result_.bound = NarrowestWorker(network_, result_.op, result_.root).find();
    if (done.failure.empty()) return read(Json::parse(done.lines[0]), *result_.bound);
    result_.notes.push_back(fmt::format(
        "the bound is that of the narrowest worker alone; the search for a closer one: {}", done.failure));
  }

  void read_predictions(std::size_t planner, const WorkResult& done) {
    std::size_t row = result_.rows.size();
    for (const std::string& line : done.lines) {
      Prediction& prediction = result_.rows[--row].predictions[planner];
      if (line.starts_with('[')) {
        const Json found = Json::parse(line);
        prediction.seconds = found[0].get<double>();
        found[1].get_to(prediction.through);
        found[2].get_to(prediction.flows);
        const auto spent = found[3].get<std::vector<double>>();
        prediction.breakdown = {.links = spent[0],
                                .processors = spent[1],
                                .latency = spent[2],
                                .limit = static_cast<forest::Breakdown::Limit>(found[4].get<int>()),
                                .without = spent[3],
                                .reason = found[5].get<std::string>()};
      } else {
        prediction.reason = line;
      }
    }
    if (row > 0)
      result_.notes.push_back(fmt::format("{}: {}{}", result_.planners[planner], done.failure,
                                          done.lines.empty() ? "" : "; the smaller sizes are left out"));
    while (row-- > 0) {
      Prediction& prediction = result_.rows[row].predictions[planner];
      prediction.reason = done.failure;
      prediction.not_done = true;
    }
  }

  const cluster::Cluster& network_;
  double patience_;
  std::vector<int> servers_;
  Study& result_;
  const std::function<void(const StudyProgress&)>& look_;
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
    row->choice = choice_of(model, study, *row);
    const std::size_t taken = index_of(study, row->choice.taken);
    const bool known = row->choice.missing.empty() && taken < study.planners.size();
    row->taken = known && row->predictions[taken].seconds ? static_cast<int>(taken) : -1;
    if (row->choice.missing.empty()) continue;
    if (largest == nullptr) largest = &*row;
    missing.insert(row->choice.missing.begin(), row->choice.missing.end());
  }
  if (largest == nullptr) return;
  const bool all = largest == &study.rows.back();
  study.notes.push_back(fmt::format("{}none is marked (*) as {}: not known of {}; more --patience may tell",
                                    all ? "" : fmt::format("from {} down, ", size_text(study, *largest)),
                                    taken_text(study), fmt::join(missing, ", ")));
}

const forest::Planner& planner_of(std::string_view name) {
  return forest::find_planner(name == sim::kBounded ? "sharded_star" : std::string(name));
}

forest::Forest plan_for(const cluster::Cluster& network, const forest::Request& request,
                        const std::string& planner) {
  return planner.empty() ? forest::plan_best(request, network) : planner_of(planner).plan(request, network);
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

std::string to_text(const StudyProgress& progress) {
  constexpr std::size_t kNamedUnderWay = 3;
  const std::vector<std::string>& all = progress.under_way;
  const std::size_t named = std::min(all.size(), kNamedUnderWay);
  std::string text = fmt::format("{} of {} times predicted", progress.done, progress.all);
  if (named > 0) text += fmt::format("; under way: {}", fmt::join(all.begin(), all.begin() + named, ", "));
  if (named < all.size()) text += fmt::format(" and {} more", all.size() - named);
  return text;
}

std::optional<forest::Bound> bound_within(const cluster::Cluster& network, Collective op, forest::NodeId root,
                                          double seconds, const std::function<void()>& look) {
  if (!forest::has_bound(op)) return {};
  if (network.nodes.size() > kMostNodesToPlan) return NarrowestWorker(network, op, root).find();
  Study found;
  found.op = op;
  found.root = root;
  found.ranks = network.workers();
  StudyRequest request;
  request.patience = seconds;
  std::function<void(const StudyProgress&)> on_progress;
  if (look) on_progress = [&](const StudyProgress&) { look(); };
  Pieces(network, request, found, on_progress).run();
  return found.bound;
}

Study study_plans(const cluster::Cluster& network, const StudyRequest& request,
                  const std::function<void(const StudyProgress&)>& look) {
  Study result;
  result.op = request.op;
  result.root = request.root;
  result.ranks = network.workers();
  const forest::Request asked = request_of(request.op, request.root, result.ranks, request.sizes.front());
  forest::validate(asked);
  result.all_planners = request.only.empty();
  result.notes = request.notes;
  for (const forest::Planner& planner : forest::planners()) {
    if (!planner.serves(asked))
      result.others.push_back(planner.name);
    else if (result.all_planners || std::ranges::count(request.only, planner.name) > 0)
      result.planners.push_back(planner.name);
  }
  if (std::ranges::count(request.only, sim::kBounded) > 0) result.planners.emplace_back(sim::kBounded);
  const bool has_bound = forest::has_bound(request.op);
  if (!has_bound)
    result.no_bound = fmt::format("no bound is known for {}", name(request.op));
  else if (!request.bound)
    result.no_bound = "no bound was asked for";
  if (network.nodes.size() > kMostNodesToPlan) {
    const std::string limit = fmt::format(
        "times are predicted for networks of up to {} nodes, and this one has {}: write several "
        "switches as one, or see talweg simulate",
        kMostNodesToPlan, network.nodes.size());
    if (!has_bound || !result.all_planners) throw Error(ErrorCode::invalid_argument, limit);
    result.bound = NarrowestWorker(network, request.op, request.root).find();
    result.notes.push_back("the bound is that of the narrowest worker alone; " + limit);
    return result;
  }
  for (const std::int64_t bytes : request.sizes)
    result.rows.push_back({bytes, std::vector<Prediction>(result.planners.size()), -1});
  Pieces(network, request, result, look).run();
  return result;
}

}  // namespace talweg::study
