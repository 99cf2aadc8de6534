#include "study/rank_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using Frame = sim::FrameRecord::Frame;

constexpr std::size_t kLaneSteps = 240;

// Time cut into steps, and what there was in each of them.
class Lane {
 public:
  Lane(sim::Picoseconds begin, sim::Picoseconds end)
      : begin_(begin), length_(std::max<sim::Picoseconds>(1, end - begin)), steps_(kLaneSteps, '0') {}

  // `what`: 1, 2, 4 or 8.
  void add(sim::Picoseconds from, sim::Picoseconds to, unsigned what) {
    constexpr const char* kDigits = "0123456789abcdef";
    for (std::size_t i = step(from), last = step(to); i <= last; ++i) {
      const char c = steps_[i];
      steps_[i] = kDigits[static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10) | what];
    }
  }
  const std::string& text() const { return steps_; }

 private:
  std::size_t step(sim::Picoseconds at) const {
    const double part = static_cast<double>(at - begin_) / static_cast<double>(length_);
    return static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * (kLaneSteps - 1));
  }

  sim::Picoseconds begin_, length_;
  std::string steps_;
};

struct Span {
  sim::Picoseconds begin = sim::kNever, end = 0;
  void take(sim::Picoseconds from, sim::Picoseconds to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
  }
};

// Which nodes have a row: all, if they are few.
std::vector<int> shown(const std::vector<int>& nodes, const std::vector<Frame>& path) {
  if (nodes.size() <= kMostLanes) return nodes;
  std::set<int> some;
  for (auto frame = path.rbegin(); frame != path.rend() && some.size() < kMostLanes / 2; ++frame)
    some.insert({frame->to, frame->from});
  const std::size_t room = kMostLanes - std::min(kMostLanes, some.size());
  for (std::size_t i = 0; i < room; ++i) some.insert(nodes[nodes.size() * i / room]);
  return {some.begin(), some.end()};
}

// "25 frames from h0 to h3: 40 % of the time they travel, 60 % they wait at a node"
std::string path_text(const cluster::Cluster& cluster, const std::vector<Frame>& path, const Span& call) {
  if (path.empty()) return "";
  sim::Picoseconds travels = 0;
  for (const Frame& frame : path) travels += frame.received - frame.sent;
  const auto all = static_cast<double>(std::max<sim::Picoseconds>(1, call.end - call.begin));
  const double part = static_cast<double>(travels) / all;
  return fmt::format(
      "The critical path: {} {} from {} to {}, where the call ended last. {:.0f} % of the call they are on "
      "the way, and {:.0f} % a chunk waits at a host.",
      path.size(), path.size() == 1 ? "frame" : "frames, one behind the other,",
      cluster.nodes[at(path.front().from)].name, cluster.nodes[at(path.back().to)].name, 100 * part,
      100 * std::max(0.0, 1 - part));
}

// A step on the critical path: what a rank did, or a collective that began for all when `from` came to it.
struct OnPath {
  const sim::StepNote* from = nullptr;
  const sim::StepNote* to = nullptr;
};

// In the order of time. Of `steps`, which may be the first ones alone.
std::vector<OnPath> critical_steps(const std::vector<sim::StepNote>& steps) {
  const sim::StepNote* step = nullptr;  // that ended last
  for (const sim::StepNote& each : steps)
    if (step == nullptr || each.ended > step->ended) step = &each;
  if (step == nullptr) return {};
  std::map<std::pair<std::int64_t, int>, const sim::StepNote*> of_group;  // by turn and node
  for (const sim::StepNote& each : steps)
    if (each.group == step->group) of_group.emplace(std::pair(each.turn, each.node), &each);
  std::vector<OnPath> path;
  while (step != nullptr) {
    const sim::StepNote* last = step;  // to begin it
    if (!step->computes)
      for (auto its = of_group.lower_bound({step->turn, 0});
           its != of_group.end() && its->first.first == step->turn; ++its)
        if (its->second->began > last->began) last = its->second;
    path.push_back({last, step});
    const auto before = of_group.find({last->turn - 1, last->node});
    step = before == of_group.end() ? nullptr : before->second;
  }
  std::ranges::reverse(path);
  return path;
}

std::string path_text(const cluster::Cluster& cluster, const std::vector<OnPath>& path, const Span& all) {
  sim::Picoseconds computes = 0, collects = 0;
  int passed_on = 0;
  std::map<int, int> awaited;  // by node: collectives that it began last
  for (const OnPath& each : path) {
    (each.to->computes ? computes : collects) += each.to->ended - each.from->began;
    if (each.from->node == each.to->node) continue;
    ++passed_on;
    ++awaited[each.from->node];
  }
  const auto part = [&](sim::Picoseconds time) {
    return 100 * static_cast<double>(time) /
           static_cast<double>(std::max<sim::Picoseconds>(1, all.end - all.begin));
  };
  std::string text = fmt::format(
      "The critical path: {} {} back from {}, where all ended last. {:.0f} % of the time it computes, {:.0f} "
      "% "
      "a collective goes on for which no rank has still to come.",
      path.size(), path.size() == 1 ? "step" : "steps, one behind the other,",
      cluster.nodes[at(path.back().to->node)].name, part(computes), part(collects));
  if (passed_on > 0) {
    const auto most = std::ranges::max_element(awaited, {}, [](const auto& each) { return each.second; });
    text += fmt::format(" {} on it {} begun last by another rank, most often by {} ({}).",
                        passed_on == 1 ? "One collective" : fmt::format("{} collectives", passed_on),
                        passed_on == 1 ? "was" : "were", cluster.nodes[at(most->first)].name, most->second);
  }
  return text;
}

}  // namespace

nlohmann::json call_lanes(const cluster::Cluster& cluster, const sim::Ranks& ranks,
                          const sim::FrameRecord& record) {
  std::map<int, sim::CollectiveResult> last;  // by node
  for (const sim::CollectiveResult& result : ranks.results()) {
    if (result.ended == sim::kNever) continue;
    const auto [known, is_new] = last.try_emplace(ranks.node(result.rank), result);
    if (!is_new && result.call > known->second.call) known->second = result;
  }
  Span call;
  int slowest = -1;
  std::vector<int> nodes;
  for (const auto& [node, result] : last) {
    if (result.ended >= call.end) slowest = node;
    call.take(result.started, result.ended);
    nodes.push_back(node);
  }
  if (nodes.empty()) return {};
  for (const Frame& frame : record.frames())  // aggregators
    for (const int node : {frame.from, frame.to})
      if (!last.contains(node)) nodes.push_back(node);
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());

  const std::vector<Frame> path = record.critical_path(slowest);
  std::map<int, int> row_of;
  std::vector<Lane> sends, receives;
  Json rows = Json::array();
  for (const int node : shown(nodes, path)) {
    row_of[node] = static_cast<int>(sends.size());
    sends.emplace_back(call.begin, call.end);
    receives.emplace_back(call.begin, call.end);
    const auto its = last.find(node);
    const Span span = its == last.end() ? call : Span{its->second.started, its->second.ended};
    rows.push_back({cluster.nodes[at(node)].name, sim::seconds(span.begin), sim::seconds(span.end)});
  }
  const auto row = [&](int node) {
    const auto found = row_of.find(node);
    return found == row_of.end() ? -1 : found->second;
  };
  for (const Frame& frame : record.frames()) {
    const unsigned what = frame.up ? 1 : 2;
    if (const int from = row(frame.from); from >= 0) sends[at(from)].add(frame.sent, frame.received, what);
    if (const int to = row(frame.to); to >= 0) receives[at(to)].add(frame.sent, frame.received, what);
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    rows[i].push_back(sends[i].text());
    rows[i].push_back(receives[i].text());
  }
  Json hops = Json::array();
  for (const Frame& frame : path)
    hops.push_back({row(frame.from), row(frame.to), sim::seconds(frame.sent), sim::seconds(frame.received)});
  std::string said = path_text(cluster, path, call);
  if (!record.complete())
    said = "More frames than are kept: what is shown ends early, without a critical path.";
  if (nodes.size() > sends.size()) said += fmt::format(" {} of {} are shown.", sends.size(), nodes.size());
  return {{"begin", sim::seconds(call.begin)},
          {"end", sim::seconds(call.end)},
          {"rows", std::move(rows)},
          {"path", std::move(hops)},
          {"said", std::move(said)}};
}

nlohmann::json step_lanes(const cluster::Cluster& cluster, const std::vector<sim::StepNote>& steps) {
  Span all;
  std::map<int, Span> nodes;
  for (const sim::StepNote& step : steps) {
    all.take(step.began, step.ended);
    nodes[step.node].take(step.began, step.ended);
  }
  if (nodes.empty()) return {};
  std::vector<int> numbers;
  for (const auto& [node, span] : nodes) numbers.push_back(node);
  const std::vector<OnPath> path = critical_steps(steps);
  std::vector<Frame> between;  // whose rows are to be shown
  for (const OnPath& each : path) between.push_back({.from = each.from->node, .to = each.to->node});
  std::map<int, Lane> lanes;
  for (const int node : shown(numbers, between)) lanes.emplace(node, Lane(all.begin, all.end));
  for (const sim::StepNote& step : steps)
    if (const auto lane = lanes.find(step.node); lane != lanes.end())
      lane->second.add(step.began, step.ended, step.computes ? 4 : 8);
  Json rows = Json::array();
  for (const auto& [node, lane] : lanes)
    rows.push_back({cluster.nodes[at(node)].name, sim::seconds(nodes[node].begin),
                    sim::seconds(nodes[node].end), lane.text()});
  const auto row = [&](int node) {
    const auto found = lanes.find(node);
    return found == lanes.end() ? -1 : static_cast<int>(std::distance(lanes.begin(), found));
  };
  Json hops = Json::array();
  for (const OnPath& each : path)
    hops.push_back({row(each.from->node), row(each.to->node), sim::seconds(each.from->began),
                    sim::seconds(each.to->ended)});
  std::string said = path_text(cluster, path, all);
  if (nodes.size() > lanes.size()) said += fmt::format(" {} of {} are shown.", lanes.size(), nodes.size());
  return {{"begin", sim::seconds(all.begin)},
          {"end", sim::seconds(all.end)},
          {"rows", std::move(rows)},
          {"path", std::move(hops)},
          {"said", std::move(said)}};
}

}  // namespace talweg::study
