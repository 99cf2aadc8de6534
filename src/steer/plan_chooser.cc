#include "steer/plan_chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "forest/planner.h"
#include "steer/adaptation.h"
#include "talweg/error.h"

namespace talweg::steer {

PlanChooser::PlanChooser(const cluster::Cluster& network, const std::string& algorithm,
                         Background* background)
    : background_(background) {
  std::size_t begin = 0;
  while (begin < algorithm.size()) {
    const std::size_t end = std::min(algorithm.find(';', begin), algorithm.size());
    const std::string part = algorithm.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) continue;
    const std::size_t colon = part.find(':');
    const std::string planner = colon == std::string::npos ? part : part.substr(colon + 1);
    forest::find_planner(planner);
    if (colon == std::string::npos) {
      chosen_for_all_ = planner;
      continue;
    }
    const auto op = parse_collective(part.substr(0, colon));
    if (!op)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("algorithm \"{}\": \"{}\" is no collective", algorithm, part.substr(0, colon)));
    forest::Request any;
    any.op = *op;
    if (!forest::find_planner(planner).serves(any))
      throw Error(ErrorCode::unsupported,
                  fmt::format("algorithm \"{}\": {} does not serve {}", algorithm, planner, name(*op)));
    chosen_[*op] = planner;
  }
  change_to(network);
}

PlannedAhead plan_ahead(const cluster::Cluster& network, std::span<const forest::Request> requests,
                        const forest::WorkLimit* limit) {
  PlannedAhead ahead;
  ahead.model = std::make_shared<const forest::CostModel>(network);
  forest::PackingMemo memo;
  for (const forest::Request& request : requests) try {
      forest::Planned plan = forest::plan_at_once(request, *ahead.model, memo, limit);
      auto forest = std::make_shared<forest::Forest>(std::move(plan.forest));
      ahead.plans.try_emplace(request, PlanSource::Plan{std::move(forest), plan.complete()});
    } catch (const Error&) {  // first() says it to whoever calls
    }
  return ahead;
}

void PlanChooser::change_to(const std::vector<double>& rates, std::shared_ptr<const PlannedAhead> ahead) {
  const cluster::Cluster network = with_rates(this->network(), rates);
  if (ahead != nullptr && ahead->model->network() == network)
    change_to(std::move(ahead));
  else
    change_to(network);
}

void PlanChooser::change_to(const cluster::Cluster& network) {
  change_to(std::make_shared<const PlannedAhead>(plan_ahead(network, {})));
}

void PlanChooser::change_to(std::shared_ptr<const PlannedAhead> ahead) {
  tasks_.clear();
  ready_.clear();
  ahead_ = std::move(ahead);
  model_ = ahead_->model;
  at_once_ = forest::PackingMemo();
  in_full_ = std::make_shared<InFull>();
  behind_ = std::make_shared<forest::PackingMemo>();
}

const forest::Planner* PlanChooser::named(const forest::Request& request) const {
  const auto it = chosen_.find(request.op);
  const std::string& wanted = it != chosen_.end() ? it->second : chosen_for_all_;
  if (wanted.empty()) return nullptr;
  const forest::Planner& planner = forest::find_planner(wanted);
  // "ring" for everything leaves operations that no ring can do to those who can.
  return planner.serves(request) ? &planner : nullptr;
}

PlanSource::Plan PlanChooser::first(const forest::Request& request) {
  if (const auto it = ready_.find(request); it != ready_.end()) return {it->second, true};
  if (const forest::Planner* const planner = named(request); planner != nullptr)
    return {std::make_shared<forest::Forest>(plan_named(*planner, request)), true};
  if (const auto it = ahead_->plans.find(request); it != ahead_->plans.end())
    return {it->second.forest, it->second.final || background_ == nullptr};
  forest::Planned plan = forest::plan_at_once(request, *model_, at_once_);
  const bool final = plan.complete() || background_ == nullptr;
  return {std::make_shared<forest::Forest>(std::move(plan.forest)), final};
}

// A task starts when a request is seen for the second time: many are never seen again.
PlanSource::Plan PlanChooser::later(const forest::Request& request) {
  const auto it = tasks_.find(request);
  if (it == tasks_.end()) {
    if (tasks_.size() < kMostTasks)
      tasks_.emplace(request,
                     background_->start([request, model = model_, memo = behind_](forest::WorkLimit& limit) {
                       return forest::plan_best(request, *model, *memo, &limit);
                     }));
    return {nullptr, false};
  }
  if (!it->second.done()) return {nullptr, false};
  auto forest = it->second.take();
  tasks_.erase(it);
  if (forest == nullptr) return {nullptr, true};
  if (ready_.size() >= kMostReady) ready_.clear();
  ready_.emplace(request, forest);
  return {std::move(forest), true};
}

// Where somebody else is packing, what that comes to is not waited for.
forest::Forest PlanChooser::plan_named(const forest::Planner& planner, const forest::Request& request) const {
  const std::unique_lock alone(in_full_->mutex, std::try_to_lock);
  forest::PackingMemo own;
  return forest::plan_by(planner, request, *model_, alone ? in_full_->packings : own);
}

std::function<forest::Forest()> PlanChooser::best(const forest::Request& request) const {
  if (const auto it = ready_.find(request); it != ready_.end())
    return [forest = it->second] { return *forest; };
  return [request, planner = named(request), model = model_, in_full = in_full_] {
    const std::lock_guard alone(in_full->mutex);
    return planner != nullptr ? forest::plan_by(*planner, request, *model, in_full->packings)
                              : forest::plan_best(request, *model, in_full->packings);
  };
}

std::string describe(const forest::Forest& forest, const forest::CostModel& model) {
  std::int64_t chunks = 0;
  std::int64_t chunk = 0;
  for (const forest::Tree& tree : forest.trees) {
    chunks = std::max(chunks, forest::chunk_count(tree));
    chunk = std::max(chunk, std::min(tree.chunk, tree.slice.count));
  }
  return fmt::format("{}, {} trees, up to {} chunks of {}, predicted {:.4g} ms",
                     forest::plan_title(forest.planner, forest::aggregator_names(forest, model.network())),
                     forest.trees.size(), chunks, to_string(Bytes{chunk * forest.request.element_size}),
                     model.seconds(forest) * 1e3);
}

}  // namespace talweg::steer
