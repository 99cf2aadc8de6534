// PlanChooser: makes a group's plans. What the user has named comes first; else the forest that
// forest::choose() takes, as for `talweg plan`, `info` and `simulate`. Where planning takes longer than a
// call can wait, the best of what is quickly planned serves until it is there.
//
// For one thread at a time. Tasks in the background, and whoever runs what best() returns, read models, which
// nobody changes, and memos of their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "steer/background.h"
#include "steer/plan_leader.h"

namespace talweg::steer {

// What a chooser's first() plans for a network, where the user has named nothing; without what nothing
// serves. From any thread; throws WorkLimit::Reached, if there is a limit, when nobody waits for it.
PlannedAhead plan_ahead(const cluster::Cluster& network, std::span<const forest::Request> requests,
                        const forest::WorkLimit* limit = nullptr);

// "ring, 8 trees, up to 64 chunks of 64 KiB, predicted 8.9 ms", in the network of that model.
std::string describe(const forest::Forest& forest, const forest::CostModel& model);

class PlanChooser : public PlanSource {
 public:
  // `algorithm` as GroupOptions::algorithm. Throws Error{invalid_argument} for planners that do not exist or
  // operations that are none, Error{unsupported} for a planner that does not serve the operation it is named
  // for. `background` may be null: then nothing better follows.
  PlanChooser(const cluster::Cluster& network, const std::string& algorithm, Background* background);

  Plan first(const forest::Request& request) override;
  Plan later(const forest::Request& request) override;
  // Plans what calls come to in the end, in the network of now. May take minutes: to be run from any thread,
  // while the chooser plans for calls.
  std::function<forest::Forest()> best(const forest::Request& request) const;

  // Null: the user has named none that serves it.
  const forest::Planner* named(const forest::Request& request) const;
  const cluster::Cluster& network() const { return model_->network(); }
  const std::shared_ptr<const forest::CostModel>& model() const { return model_; }
  // Of what was planned ahead for another network nothing is used.
  void change_to(const std::vector<double>& rates, std::shared_ptr<const PlannedAhead> ahead) override;
  void change_to(const cluster::Cluster& network);

 private:
  // One program's calls rarely ask for more at a time; each may keep a processor busy for seconds.
  static constexpr std::size_t kMostTasks = 16;
  static constexpr std::size_t kMostReady = 512;  // as many as SharedPlans keeps

  void change_to(std::shared_ptr<const PlannedAhead> ahead);
  forest::Forest plan_named(const forest::Planner& planner, const forest::Request& request) const;

  struct InFull {
    std::mutex mutex;
    forest::PackingMemo packings;
  };

  std::map<Collective, std::string> chosen_;  // by the user
  std::string chosen_for_all_;
  Background* background_;
  std::shared_ptr<const PlannedAhead> ahead_;
  std::shared_ptr<const forest::CostModel> model_;
  forest::PackingMemo at_once_;
  std::shared_ptr<InFull> in_full_;
  std::shared_ptr<forest::PackingMemo> behind_;  // used in the background alone
  std::unordered_map<forest::Request, Background::Task<forest::Forest>, RequestHash> tasks_;
  std::unordered_map<forest::Request, std::shared_ptr<const forest::Forest>, RequestHash> ready_;
};

}  // namespace talweg::steer
