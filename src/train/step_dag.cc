#include "train/step_dag.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/at.h"
#include "base/fail.h"

namespace talweg::train {
namespace {

constexpr double kMostTasks = 5e6;  // some 1 GB; more than kMostLayers on one rank come to, each sent alone

constexpr int kNone = -1;

// Adds step after step. Tasks of one device are added in the order in which it runs them, so members hold, by
// rank, the number of the task that others wait for.
class StepBuilder {
 public:
  StepBuilder(const Job& job, const Strategy& strategy, const Setting& setting, bool recorded)
      : job_(job),
        strategy_(strategy),
        setting_(setting),
        recorded_(recorded),
        layers_(static_cast<int>(job.layers.size())) {
    steps_.ranks = std::max(1, static_cast<int>(setting.slowness.size()));
    travels_ = setting.network.ranks > 1 || recorded;
    forward_order_ =
        strategy.sending == Strategy::Sending::decoupled || strategy.sending == Strategy::Sending::sharded;
    groups_ = forward_order_ ? forward_groups(job, strategy.merging, setting)
                             : groups_of(job, strategy.merging, setting);
    if (strategy.sending == Strategy::Sending::by_priority)
      groups_ = groups_of(job, {.rule = Merging::Rule::none}, setting);
    note_groups();
    waits_ = peer_waits(job, setting);
    share_update();
    make_room();
    backward_of_.resize(at(layers_));
    add_resources();
  }

  StepDag build() {
    for (step_ = 0; step_ < kSteps; ++step_) {
      load();
      if (step_ == 0) begin_forward_state();
      send_unnamed(true);
      forward();
      backward();
      finish_step();
    }
    steps_.groups = groups_;
    return std::move(steps_);
  }

 private:
  using Sending = Strategy::Sending;
  using Input = Strategy::Input;

  // ---- what is known before

  void note_groups() {
    group_at_.assign(at(layers_), kNone);
    groups_of_.assign(at(layers_), 0);
    for (int g = 0; g < std::ssize(groups_); ++g)
      for (const int layer : groups_[at(g)]) {
        group_at_[at(layer)] = g;
        ++groups_of_[at(layer)];
      }
  }

  // What no layer says of the optimiser is shared out by gradients, for strategies that update layer by
  // layer.
  void share_update() {
    const auto all = static_cast<double>(job_.gradients().value);
    for (const Layer& layer : job_.layers) {
      const double part = all > 0 ? static_cast<double>(layer.gradient.value) / all : 1.0 / layers_;
      updates_.push_back(in_seconds(layer.update) + in_seconds(job_.update) * part);
    }
  }

  // Refuses what is too many.
  void make_room() {
    double transfers = static_cast<double>(groups_.size()) * 3;
    if (strategy_.sending == Sending::by_priority && strategy_.partition.value > 0)
      transfers += static_cast<double>(job_.gradients().value) / setting_.compression /
                   static_cast<double>(strategy_.partition.value);
    const double tasks = kSteps * (steps_.ranks * (5.0 * layers_ + 8) + transfers);
    if (tasks > kMostTasks)
      refuse("job {}: {} layers on {} ranks of their own, or so many pieces, are more than the model takes",
             job_.name, layers_, steps_.ranks);
    steps_.dag.reserve(static_cast<std::size_t>(tasks), static_cast<std::size_t>(2 * tasks));
  }

  void add_resources() {
    for (int r = 0; r < steps_.ranks; ++r) {
      steps_.devices.push_back(steps_.dag.add_resource({.name = "device", .rank = r}));
      inputs_.push_back(steps_.dag.add_resource({.name = "input", .rank = r}));
      copies_.push_back(steps_.dag.add_resource({.name = "copy", .rank = r}));
    }
    const bool urgent = strategy_.sending == Sending::by_priority || strategy_.sending == Sending::sharded ||
                        (strategy_.sending == Sending::decoupled && !strategy_.barrier);
    network_ = steps_.dag.add_resource({.name = "network",
                                        .rank = kNone,
                                        .order = urgent ? Order::by_urgency : Order::as_added,
                                        .credit = static_cast<double>(strategy_.credit.value),
                                        .in_flight = in_flight(),
                                        .burst = recorded_ ? 0 : setting_.network.burst});
    steps_.ends.resize(at(steps_.ranks));
    loaded_.assign(at(steps_.ranks), kNone);
    before_copy_.assign(at(steps_.ranks), {kNone, kNone});
    before_end_.assign(at(steps_.ranks), {kNone, kNone});
  }

  // Transfers by priority without credit go one by one. Recorded times are each transfer's turn, after what
  // others hid of it.
  int in_flight() const {
    const bool one_by_one = strategy_.sending == Sending::by_priority && strategy_.credit.value == 0;
    return recorded_ || one_by_one ? 1 : setting_.in_flight;
  }

  // ---- tasks

  double busy(Nanoseconds time, int rank) const {
    const double slow = setting_.slowness.empty() ? 1 : setting_.slowness[at(rank)];
    return in_seconds(time) * setting_.batch / setting_.compute * slow;
  }
  double updating(double seconds, int rank) const {
    return seconds / setting_.compute * (setting_.slowness.empty() ? 1 : setting_.slowness[at(rank)]);
  }

  int on_device(int rank, TaskKind kind, int layer, double seconds, std::span<const int> after) {
    return steps_.dag.add({.kind = kind,
                           .resource = steps_.devices[at(rank)],
                           .step = step_,
                           .first = layer,
                           .last = layer,
                           .seconds = seconds},
                          after);
  }
  // Returns what ends last: the gap, or the task before it.
  int gap_behind(int task, int rank, int layer, Nanoseconds time) {
    return time.value > 0 ? on_device(rank, TaskKind::gap, layer, in_seconds(time), {}) : task;
  }

  // A layer that is in several groups has as much in each of them.
  double bytes_of(const std::vector<int>& layers) const {
    double bytes = 0;
    for (const int layer : layers)
      bytes += static_cast<double>(job_.layers[at(layer)].gradient.value) / groups_of_[at(layer)];
    return bytes / setting_.compression;
  }
  double wait_of(const std::vector<int>& layers) const {
    double wait = 0;
    for (const int layer : layers) wait = std::max(wait, waits_[at(layer)]);
    return wait;
  }

  struct Piece {
    Collective op = Collective::all_reduce;
    double bytes = 0;
    double wait = 0;
    int urgency = 0;
    int step = 0;
    double taken = kNone;  // seconds, where they are known
  };
  // A collective that steps do not need for gradients counts as an all-gather.
  template <class Times>
  static const TransferTimes& times_of(const Times& times, Collective op) {
    return op == Collective::all_reduce       ? times.all_reduce
           : op == Collective::reduce_scatter ? times.reduce_scatter
                                              : times.all_gather;
  }
  int transfer(const Piece& piece, const std::vector<int>& layers, std::span<const int> after) {
    if (!travels_) return kNone;
    const TaskKind kind = piece.op == Collective::reduce_scatter ? TaskKind::reduce_scatter
                          : piece.op == Collective::all_reduce   ? TaskKind::all_reduce
                          : piece.op == Collective::all_gather   ? TaskKind::all_gather
                                                                 : TaskKind::collective;
    const TransferTimes& times = times_of(setting_.network, piece.op);
    const TransferTimes& least = times_of(setting_.network.least, piece.op);
    const double taken = piece.taken >= 0 ? piece.taken : times.seconds(piece.bytes);
    const double startup = piece.taken >= 0 ? 0 : times.startup_of(piece.bytes);
    return steps_.dag.add(
        {.kind = kind,
         .resource = network_,
         .step = piece.step,
         .first = layers.empty() ? kNone : std::ranges::min(layers),
         .last = layers.empty() ? kNone : std::ranges::max(layers),
         .seconds = taken + piece.wait,
         .peer_wait = piece.wait,
         .bytes = piece.bytes,
         .op = piece.op,
         .urgency = piece.urgency,
         .startup = startup + piece.wait,
         // Of what no bandwidth helps, all that is not in the start-up.
         .fixed = least.seconds(piece.bytes) - std::min(startup, least.startup_of(piece.bytes))},
        after);
  }

  // Exchanges that carried no gradients: before the forward pass those that were sent before all gradients,
  // as buffers are broadcast; behind the backward pass the others.
  void send_unnamed(bool before) {
    unnamed_.clear();
    bool seen_gradients = false;
    std::vector<int> after = before ? begins() : backward_end_;
    if (before) after.insert(after.end(), loaded_.begin(), loaded_.end());
    for (const Exchange& exchange : job_.exchanges) {
      seen_gradients = seen_gradients || !exchange.layers.empty();
      if (!exchange.layers.empty() || seen_gradients == before) continue;
      Piece piece{.op = exchange.op, .bytes = static_cast<double>(exchange.bytes.value), .step = step_};
      piece.wait = wait_in(exchange);
      piece.taken = recorded_ ? in_seconds(exchange.time) : time_on_its_network(exchange);
      unnamed_.push_back(transfer(piece, {}, after));
    }
  }
  // kNone: the network is another, or what the exchange took is not known.
  double time_on_its_network(const Exchange& exchange) const {
    if (!setting_.recorded_on || exchange.time.value <= 0) return kNone;
    const auto bytes = static_cast<double>(exchange.bytes.value);
    const double there = times_of(*setting_.recorded_on, exchange.op).seconds(bytes);
    const double here = times_of(setting_.network, exchange.op).seconds(bytes);
    return in_seconds(exchange.time) * (there > 0 ? here / there : 1);
  }
  // What the ranks did last before this step.
  std::vector<int> begins() const {
    std::vector<int> tasks;
    for (const auto& ends : steps_.ends)
      if (!ends.empty()) tasks.push_back(ends.back());
    return tasks;
  }

  // ---- the parts of a step

  void load() {
    for (int r = 0; r < steps_.ranks; ++r) {
      const double read = in_seconds(job_.input) * setting_.batch * setting_.readers;
      const double copied = in_seconds(job_.copy) * setting_.batch;
      const int ended = steps_.ends[at(r)].empty() ? kNone : steps_.ends[at(r)].back();
      auto& [copy_before, copy_before_that] = before_copy_[at(r)];
      auto& [end_before, end_before_that] = before_end_[at(r)];
      const bool ahead = strategy_.input == Input::read_and_copy_ahead;
      // Two buffers on the host, and two on the device where copies run ahead.
      const int buffer_free = strategy_.input == Input::serial ? ended : copy_before_that;
      const int input = steps_.dag.add(
          {.kind = TaskKind::input, .resource = inputs_[at(r)], .step = step_, .seconds = read},
          {ahead ? kNone : buffer_free});
      const int copy = steps_.dag.add({.kind = TaskKind::copy,
                                       .resource = ahead ? inputs_[at(r)] : copies_[at(r)],
                                       .step = step_,
                                       .seconds = copied},
                                      {input, ahead ? end_before_that : ended});
      loaded_[at(r)] = copy;
      copy_before_that = copy_before;
      copy_before = copy;
      end_before_that = end_before;
    }
  }

  void begin_forward_state() {
    exchanged_.assign(at(layers_), {});
    scattered_.assign(groups_.size(), kNone);
    gathered_.assign(groups_.size(), kNone);
  }

  void forward() {
    forward_end_.assign(at(steps_.ranks), kNone);
    for (int l = 0; l < layers_; ++l) {
      const int group = group_at_[at(l)];
      const bool first_of_group = group != kNone && forward_order_ && groups_[at(group)].front() == l;
      if (l == 0) gather_first();
      if (first_of_group) gather_ahead(group);
      for (int r = 0; r < steps_.ranks; ++r) {
        std::vector<int> after;
        if (l == 0) {
          after = unnamed_;
          after.push_back(loaded_[at(r)]);
        }
        update_before(r, l, first_of_group ? group : kNone, after);
        const Layer& layer = job_.layers[at(l)];
        const int run = on_device(r, TaskKind::forward, l, busy(layer.forward, r), after);
        forward_end_[at(r)] = gap_behind(run, r, l, layer.forward_gap);
      }
    }
  }

  // What forward of a layer waits for besides the layer before it: its weights.
  void update_before(int rank, int layer, int first_of_group, std::vector<int>& after) {
    if (strategy_.sending == Sending::by_priority && step_ > 0 && job_.layers[at(layer)].gradient.value > 0) {
      on_device(rank, TaskKind::update, layer, updating(updates_[at(layer)], rank), exchanged_[at(layer)]);
    } else if (strategy_.sending == Sending::decoupled && step_ > 0 && first_of_group != kNone) {
      double seconds = 0;
      for (const int l : groups_[at(first_of_group)]) seconds += updates_[at(l)];
      on_device(rank, TaskKind::update, layer, updating(seconds, rank),
                std::array{gathered_[at(first_of_group)]});
    } else if (strategy_.sending == Sending::sharded && first_of_group != kNone) {
      after.push_back(gathered_[at(first_of_group)]);
    }
  }

  // All-gathers in the forward pass: those asked for as it begins, then as it comes to each group.
  void gather_first() {
    if (!forward_order_) return;
    next_gather_ = 0;
    const bool all_at_once = strategy_.sending == Sending::decoupled && strategy_.look_ahead == 0;
    gather_until(
        all_at_once ? static_cast<int>(groups_.size()) : std::min<int>(1, static_cast<int>(groups_.size())),
        {});
  }
  void gather_ahead(int group) {
    const int until = std::min(group + strategy_.look_ahead + 1, static_cast<int>(groups_.size()));
    gather_until(until, forward_end_);
  }
  void gather_until(int until, std::span<const int> reached) {
    for (; next_gather_ < until; ++next_gather_) {
      const int g = next_gather_;
      std::vector<int> after(reached.begin(), reached.end());
      if (strategy_.sending == Sending::decoupled) {
        if (step_ == 0) continue;
        if (strategy_.look_ahead > 0) {
          // The first is asked for by the optimiser's step, the others in the forward pass.
          const auto begun = g == 0 ? backward_end_ : begins();
          after.insert(after.end(), begun.begin(), begun.end());
        }
        if (strategy_.barrier)
          after.insert(after.end(), scattered_.begin(), scattered_.end());
        else
          after.push_back(scattered_[at(g)]);
        const Piece piece{.op = Collective::all_gather,
                          .bytes = bytes_of(groups_[at(g)]),
                          .urgency = 1 + g,
                          .step = step_ - 1};
        gathered_[at(g)] = transfer(piece, groups_[at(g)], after);
      } else {
        const auto ended = begins();
        after.insert(after.end(), ended.begin(), ended.end());
        gathered_[at(g)] = gather_weights(g, after);
      }
    }
  }
  // Weights are not compressed.
  int gather_weights(int group, std::span<const int> after) {
    const double bytes = bytes_of(groups_[at(group)]) * setting_.compression;
    return transfer({.op = Collective::all_gather, .bytes = bytes, .step = step_}, groups_[at(group)], after);
  }

  void backward() {
    last_backward_ = backward_end_ = forward_end_;
    next_gather_ = static_cast<int>(groups_.size()) - 2;  // the last group's weights are still there
    for (int l = layers_ - 1; l >= 0; --l) {
      const int group = group_at_[at(l)];
      std::vector<int> weights;
      if (strategy_.sending == Sending::sharded && group != kNone && groups_[at(group)].back() == l) {
        for (; next_gather_ >= std::max(0, group - strategy_.look_ahead); --next_gather_)
          gathered_[at(next_gather_)] = gather_weights(next_gather_, backward_end_);
        weights.push_back(gathered_[at(group)]);
      }
      for (int r = 0; r < steps_.ranks; ++r) {
        const Layer& layer = job_.layers[at(l)];
        last_backward_[at(r)] = on_device(r, TaskKind::backward, l, busy(layer.backward, r), weights);
        backward_end_[at(r)] = gap_behind(last_backward_[at(r)], r, l, layer.backward_gap);
      }
      backward_of_[at(l)] = last_backward_;
      if (group != kNone && strategy_.sending == Sending::by_priority) send_pieces(l);
      if (group != kNone && forward_order_ && groups_[at(group)].front() == l) scatter(group);
    }
    if (strategy_.sending == Sending::as_ready || strategy_.sending == Sending::after_backward) send_groups();
    send_behind();
  }

  void send_pieces(int layer) {
    exchanged_[at(layer)].clear();
    const double all = bytes_of({layer});
    const auto most = static_cast<double>(strategy_.partition.value);
    const auto pieces = most > 0 ? std::max(1.0, std::ceil(all / most)) : 1.0;
    for (double i = 0; i < pieces; ++i) {
      Piece piece{.bytes = most > 0 ? std::min(most, all - i * most) : all, .urgency = layer, .step = step_};
      if (i == 0) piece.wait = waits_[at(layer)];
      exchanged_[at(layer)].push_back(transfer(piece, {layer}, last_backward_));
    }
  }

  void scatter(int group) {
    const auto& layers = groups_[at(group)];
    const int urgency = strategy_.sending == Sending::sharded ? 1 : 0;
    scattered_[at(group)] = transfer({.op = Collective::reduce_scatter,
                                      .bytes = bytes_of(layers),
                                      .wait = wait_of(layers),
                                      .urgency = urgency,
                                      .step = step_},
                                     layers, last_backward_);
  }

  void send_groups() {
    sent_.clear();
    std::size_t from = 0;  // of the exchanges, behind that of the group before
    for (const auto& layers : groups_) {
      const bool late = strategy_.sending == Sending::after_backward;
      Piece piece{.bytes = bytes_of(layers), .wait = wait_of(layers), .step = step_};
      if (recorded_) take_recorded(piece, layers.front(), from);
      sent_.push_back(
          transfer(piece, layers, late ? backward_end_ : backward_of_[at(std::ranges::min(layers))]));
    }
  }

  // What the next exchange with this layer took. Groups are in the order of the exchanges, which may have the
  // layer several times; none has it where it was sent in another way.
  void take_recorded(Piece& piece, int layer, std::size_t& from) const {
    for (std::size_t i = from; i < job_.exchanges.size(); ++i) {
      const Exchange& exchange = job_.exchanges[i];
      if (std::ranges::find(exchange.layers, layer) == exchange.layers.end()) continue;
      if (exchange.bytes.value > 0) piece.bytes = static_cast<double>(exchange.bytes.value);
      piece.taken = in_seconds(exchange.time);
      piece.wait = wait_in(exchange);
      from = i + 1;
      return;
    }
  }
  double wait_in(const Exchange& exchange) const {
    return setting_.peer_waits && setting_.slowness.empty() ? in_seconds(exchange.wait) : 0;
  }

  void send_behind() {
    send_unnamed(false);
    behind_ = unnamed_;
  }

  void finish_step() {
    for (int r = 0; r < steps_.ranks; ++r) {
      std::vector<int> after = behind_;
      double update = std::accumulate(updates_.begin(), updates_.end(), 0.0);
      switch (strategy_.sending) {
        case Sending::after_backward:
        case Sending::as_ready:
          after.insert(after.end(), sent_.begin(), sent_.end());
          break;
        case Sending::sharded:
          after.insert(after.end(), scattered_.begin(), scattered_.end());
          update /= std::max(1, setting_.network.ranks);
          break;
        default:
          update = updates_apart();
      }
      int end = on_device(r, TaskKind::update, kNone, updating(update, r), after);
      if (job_.overhead.value > 0)
        end = on_device(r, TaskKind::overhead, kNone, in_seconds(job_.overhead), {});
      steps_.ends[at(r)].push_back(end);
      before_end_[at(r)].first = end;
    }
  }
  // Of layers that have no gradient, where the others update as the next forward pass comes to them.
  double updates_apart() const {
    double seconds = 0;
    for (int l = 0; l < layers_; ++l)
      if (group_at_[at(l)] == kNone) seconds += updates_[at(l)];
    return seconds;
  }

  const Job& job_;
  const Strategy& strategy_;
  const Setting& setting_;
  const bool recorded_;
  const int layers_;
  bool travels_ = false;
  bool forward_order_ = false;
  StepDag steps_;
  std::vector<std::vector<int>> groups_;
  std::vector<int> group_at_;         // by layer; the last of those that it is in
  std::vector<int> groups_of_;        // by layer: how many it is in
  std::vector<double> waits_;         // for peers, by layer
  std::vector<double> updates_;       // seconds, by layer
  std::vector<int> inputs_, copies_;  // resources, by rank
  int network_ = 0;
  int step_ = 0;
  std::vector<int> loaded_;  // by rank
  std::vector<std::pair<int, int>> before_copy_,
      before_end_;  // by rank: of the last step, and of the one before
  // By rank: passes so far, with the gaps behind them, and the last layer's backward pass without.
  std::vector<int> forward_end_, backward_end_, last_backward_;
  std::vector<std::vector<int>> backward_of_;  // by layer
  std::vector<int> unnamed_, behind_;          // transfers
  std::vector<int> sent_;
  std::vector<std::vector<int>> exchanged_;  // by layer: its pieces
  std::vector<int> scattered_, gathered_;    // by group
  int next_gather_ = 0;
};

}  // namespace

StepDag build_steps(const Job& job, const Strategy& strategy, const Setting& setting, bool recorded) {
  return StepBuilder(job, strategy, setting, recorded).build();
}

}  // namespace talweg::train
