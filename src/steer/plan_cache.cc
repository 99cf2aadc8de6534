#include "steer/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "forest/cost.h"
#include "forest/planner.h"
#include "talweg/error.h"

namespace talweg::steer {

namespace {

std::string describe(const forest::Forest& forest, const cluster::Cluster& network) {
  std::int64_t chunks = 0;
  std::int64_t chunk = 0;
  for (const forest::Tree& tree : forest.trees) {
    chunks = std::max(chunks, forest::chunk_count(tree));
    chunk = std::max(chunk, std::min(tree.chunk, tree.slice.count));
  }
  const double seconds = forest::predict_seconds(forest, network);
  return fmt::format("{}, {} trees, up to {} chunks of {}, predicted {:.4g} ms", forest.planner,
                     forest.trees.size(), chunks, to_string(Bytes{chunk * forest.request.element_size}),
                     seconds * 1e3);
}

}  // namespace

PlanCache::PlanCache(int rank, cluster::Cluster network, const std::string& algorithm, const Logger& log)
    : rank_(rank), given_(std::move(network)), network_(given_), log_(log) {
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
}

std::size_t PlanCache::Hash::operator()(const forest::Request& r) const {
  std::size_t h = static_cast<std::size_t>(r.op) * 0x9e3779b97f4a7c15ULL + static_cast<std::size_t>(r.root);
  const auto mix = [&](std::int64_t v) {
    h = (h ^ static_cast<std::size_t>(v)) * 0x100000001b3ULL ^ (h >> 31);
  };
  mix(r.peer);
  mix(r.element_size);
  for (const std::int64_t count : r.counts) mix(count);
  return h;
}

void PlanCache::change_to(cluster::Cluster network) {
  network_ = std::move(network);
  packings_ = forest::PackingMemo();
  plans_.clear();
  order_.clear();
}

forest::Forest PlanCache::plan(const forest::Request& request) {
  const cluster::Cluster& network = request.op == Collective::send_recv ? given_ : network_;
  std::string wanted = chosen_for_all_;
  if (const auto it = chosen_.find(request.op); it != chosen_.end()) wanted = it->second;
  if (!wanted.empty()) {
    const forest::Planner& planner = forest::find_planner(wanted);
    // "ring" for everything leaves operations that no ring can do to those who can.
    if (planner.serves(request)) {
      forest::Forest forest = forest::plan_by(planner, request, network, packings_);
      forest::choose_chunks(forest, network);
      return forest;
    }
  }
  return forest::plan_at_once(request, forest::CostModel(network), packings_).forest;
}

std::shared_ptr<const protocol::LocalPlan> PlanCache::find(const forest::Request& request) {
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto forest = std::make_shared<forest::Forest>(plan(request));
  if (log_.shows(LogLevel::info))
    log_.log(LogLevel::info, "plan", "{} of {}: {}", name(request.op),
             to_string(Bytes{std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0}) *
                             request.element_size}),
             describe(*forest, network_));
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, protocol::make_local_plan(std::move(forest), rank_)).first;
  order_.push_back(&added->first);
  return added->second;
}

std::string PlanCache::explain(const forest::Request& request) {
  return describe(plan(request), network_);
}

}  // namespace talweg::steer
