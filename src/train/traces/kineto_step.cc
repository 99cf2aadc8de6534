#include "train/traces/kineto_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/fail.h"
#include "train/traces/turns.h"

namespace talweg::train {
namespace {

using Kind = KinetoOp::Kind;

// Whose time it is.
struct Owner {
  enum class Part : std::uint8_t { other, input, copy, forward, backward, update } part = Part::other;
  int layer = 0;
};

struct Segment {
  std::int64_t begin, end, launched;
  Owner owner;
};

struct Parameter {
  int layer;
  std::int64_t elements, ready;
  int element_bytes;
};

// "aten::conv2d" is conv2d_1, conv2d_2, ...
class LayerNames {
 public:
  std::string name(std::string_view op) {
    if (const auto colon = op.rfind(':'); colon != std::string_view::npos) op.remove_prefix(colon + 1);
    return fmt::format("{}_{}", op, ++count_[std::string(op)]);
  }

 private:
  std::unordered_map<std::string, int> count_;
};

class StepViewer {
 public:
  StepViewer(const KinetoTrace& trace, const KinetoStep& step) : t_(trace), step_(step) {}

  std::optional<StepSeen> see() {
    find_ops();
    if (!find_layers()) return std::nullopt;
    own_ops();
    seen_.times.number = step_.number;
    seen_.times.step = step_.end - step_.begin;
    seen_.times.layers.resize(seen_.shape.layers.size());
    sweep(t_.kernels.empty() ? segments_of_ops() : segments_of_kernels());
    find_transfers();
    return std::move(seen_);
  }

 private:
  const KinetoOp& op(std::size_t i) const { return *ops_[i]; }
  static bool is_backward(const KinetoOp& o) {
    return o.kind == Kind::backward || o.kind == Kind::accumulate;
  }
  bool of_model(const KinetoOp& o) const {
    return o.kind == Kind::plain && o.sequence >= 0 && o.thread == main_;
  }

  void find_ops() {
    const auto from = std::lower_bound(t_.ops.begin(), t_.ops.end(), step_.begin,
                                       [](const KinetoOp& o, std::int64_t time) { return o.begin < time; });
    std::map<int, int> sequences;  // by thread
    std::set<int> threads;
    for (auto o = from; o != t_.ops.end() && o->begin < step_.end; ++o) {
      ops_.push_back(&*o);
      if (o->kind == Kind::plain && o->sequence >= 0) ++sequences[o->thread];
      if (is_backward(*o)) threads.insert(o->thread);
    }
    const auto most = std::max_element(sequences.begin(), sequences.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != sequences.end()) main_ = most->first;
    threads.insert(main_);
    std::erase_if(
        ops_, [&](const KinetoOp* o) { return o->kind != Kind::optimizer && !threads.contains(o->thread); });
  }

  bool find_layers() {
    std::map<std::int64_t, std::size_t> by_sequence;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (is_backward(op(i))) {
        if (first_backward_ < 0) first_backward_ = op(i).begin;
        last_backward_ = std::max(last_backward_, op(i).end);
      } else if (of_model(op(i)) && first_backward_ < 0) {
        by_sequence[op(i).sequence] = i;
      }
    }
    if (first_backward_ < 0) return false;
    layer_of_.assign(ops_.size(), -1);
    std::vector<std::ptrdiff_t> forward_of(ops_.size(), -1);
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (op(i).kind != Kind::backward || op(i).sequence < 0) continue;
      const auto behind = by_sequence.upper_bound(op(i).sequence);
      if (behind == by_sequence.begin()) continue;
      forward_of[i] = static_cast<std::ptrdiff_t>(std::prev(behind)->second);
      layer_of_[std::prev(behind)->second] = 0;
    }
    LayerNames names;
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (layer_of_[i] == 0) {
        layer_of_[i] = static_cast<int>(seen_.shape.layers.size());
        seen_.shape.layers.push_back(names.name(t_.names[static_cast<std::size_t>(op(i).name)]));
      }
    if (seen_.shape.layers.empty()) return false;
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (forward_of[i] >= 0) layer_of_[i] = layer_of_[static_cast<std::size_t>(forward_of[i])];
    check_one_pass();
    return true;
  }

  // An operator of the model that runs after the backward pass began, and is gone back through.
  void check_one_pass() const {
    std::int64_t highest = -1;
    for (std::size_t i = ops_.size(); i-- > 0;) {
      if (op(i).kind == Kind::backward) highest = std::max(highest, op(i).sequence);
      if (of_model(op(i)) && op(i).begin > first_backward_ && op(i).sequence <= highest)
        throw_error(
            ErrorCode::bad_file,
            "{}: expected one forward and one backward pass in a step, but {} runs forward after the "
            "backward "
            "pass of step {} began: two models, accumulated gradients, or layers that are computed again",
            t_.path, t_.names[static_cast<std::size_t>(op(i).name)], step_.number);
    }
  }

  void own_ops() {
    int forward = -1;
    int backward = static_cast<int>(seen_.shape.layers.size()) - 1;
    owner_.resize(ops_.size());
    std::set<std::string_view> unknown;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const KinetoOp& o = op(i);
      Owner& owner = owner_[i];
      if (o.kind == Kind::optimizer) {
        owner = {Owner::Part::update, 0};
      } else if (is_backward(o)) {
        if (layer_of_[i] >= 0) backward = layer_of_[i];
        owner = {Owner::Part::backward, backward};
        if (o.kind == Kind::accumulate)
          parameters_.push_back({backward, o.elements, o.begin, o.element_bytes});
      } else if (o.begin < first_backward_) {
        if (layer_of_[i] >= 0) forward = layer_of_[i];
        owner = forward < 0 ? Owner{Owner::Part::input, 0} : Owner{Owner::Part::forward, forward};
      } else if (o.begin < last_backward_) {
        owner = {Owner::Part::backward, backward};
      }
    }
  }

  // Without the calls of collectives in them, in which the host only waits.
  std::vector<Segment> segments_of_ops() const {
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      std::int64_t from = op(i).begin;
      auto call = std::lower_bound(t_.calls.begin(), t_.calls.end(), from,
                                   [](const KinetoTransfer& c, std::int64_t time) { return c.begin < time; });
      for (; call != t_.calls.end() && call->begin < op(i).end; ++call) {
        if (call->thread != op(i).thread) continue;
        segments.push_back({from, call->begin, from, owner_[i]});
        from = std::max(from, call->end);
      }
      if (from <= op(i).end) segments.push_back({from, op(i).end, from, owner_[i]});
    }
    return segments;
  }

  std::vector<Segment> segments_of_kernels() const {
    std::map<int, std::vector<std::size_t>> by_thread;
    for (std::size_t i = 0; i < ops_.size(); ++i) by_thread[op(i).thread].push_back(i);
    const auto from =
        std::lower_bound(t_.kernels.begin(), t_.kernels.end(), step_.begin,
                         [](const KinetoKernel& k, std::int64_t time) { return k.launched < time; });
    std::vector<Segment> segments;
    for (auto k = from; k != t_.kernels.end() && k->launched < step_.end; ++k) {
      Segment& s = segments.emplace_back(Segment{k->begin, k->end, k->launched, {}});
      if (const auto thread = by_thread.find(k->thread); thread != by_thread.end()) {
        const auto behind =
            std::upper_bound(thread->second.begin(), thread->second.end(), k->launched,
                             [&](std::int64_t time, std::size_t i) { return time < op(i).begin; });
        // What a call outside of any operator launches counts to the one before it.
        if (behind != thread->second.begin()) s.owner = owner_[*std::prev(behind)];
      }
      if (k->copies_in && s.owner.part != Owner::Part::backward) s.owner = {Owner::Part::copy, 0};
    }
    return segments;
  }

  void sweep(std::vector<Segment> segments) {
    std::stable_sort(segments.begin(), segments.end(),
                     [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
    const Segment* before = nullptr;
    std::int64_t now = 0;
    for (const Segment& s : segments) {
      if (before != nullptr && s.begin > now) add_gap(*before, s, now);
      const std::int64_t busy = s.end - std::max(s.begin, before == nullptr ? s.begin : now);
      if (busy > 0) *busy_time(s.owner) += busy;
      if (busy > 0 && first_forward_ < 0) loading_.emplace_back(s.end - busy, s.end);
      now = before == nullptr ? s.end : std::max(now, s.end);
      before = &s;
      if (s.owner.part == Owner::Part::forward && first_forward_ < 0) first_forward_ = s.begin;
      if (s.owner.part == Owner::Part::backward) computed_until_ = now;
    }
  }
  std::int64_t* busy_time(const Owner& owner) {
    StepTimes& t = seen_.times;
    const auto layer = static_cast<std::size_t>(owner.layer);
    switch (owner.part) {
      case Owner::Part::input:
        return &t.input;
      case Owner::Part::copy:
        return &t.copy;
      case Owner::Part::forward:
        return &t.layers[layer].forward;
      case Owner::Part::backward:
        return &t.layers[layer].backward;
      case Owner::Part::update:
        return &t.update;
      case Owner::Part::other:
        break;
    }
    return &rest_;
  }
  // What follows the last layer's backward is a wait for transfers, or for the host, but no layer's.
  void add_gap(const Segment& before, const Segment& next, std::int64_t now) {
    const bool forward = before.owner.part == Owner::Part::forward;
    const bool backward =
        before.owner.part == Owner::Part::backward && next.owner.part == Owner::Part::backward;
    if (!forward && !backward) return;
    const std::int64_t gap = next.begin - now;
    const std::int64_t launch =
        t_.kernels.empty() ? gap : std::clamp<std::int64_t>(next.launched - now, 0, gap);
    seen_.times.launch_gap += launch;
    seen_.times.stream_gap += gap - launch;
    LayerTimes& layer = seen_.times.layers[static_cast<std::size_t>(before.owner.layer)];
    (forward ? layer.forward_gap : layer.backward_gap) += gap;
  }

  void find_transfers() {
    StepShape& shape = seen_.shape;
    std::vector<std::int64_t> called;
    std::vector<std::size_t> reduced;  // transfers of gradients
    std::vector<std::int64_t> elements;
    const auto& list = t_.runs.empty() ? t_.calls : t_.runs;
    std::int64_t last = 0;
    std::vector<const KinetoTransfer*> runs;
    const auto from =
        std::lower_bound(list.begin(), list.end(), step_.begin,
                         [](const KinetoTransfer& t, std::int64_t time) { return t.called < time; });
    for (auto at = from; at != list.end() && at->called < step_.end; ++at) {
      const KinetoTransfer& run = *at;
      if (run.op == Collective::barrier) continue;
      const bool of_gradients = run.called >= first_backward_ && run.op != Collective::broadcast;
      int bytes = run.element_bytes;
      if (bytes == 0 && of_gradients && !parameters_.empty()) bytes = parameters_.front().element_bytes;
      if (run.elements < 0 || bytes == 0) seen_.bytes_known = false;
      std::int64_t size = 0;
      if (run.elements > 0 && __builtin_mul_overflow(run.elements, bytes, &size))
        throw_error(ErrorCode::bad_file, "{}: expected transfers of less than 2^63 bytes, got {} elements",
                    t_.path, run.elements);
      if (of_gradients) {
        reduced.push_back(shape.transfers.size());
        elements.push_back(run.elements);
        called.push_back(run.called);
      }
      shape.transfers.push_back({run.op, size, {}});
      runs.push_back(&run);
      if (!t_.runs.empty()) last = std::max(last, run.end);
    }
    if (t_.runs.empty())
      seen_.times.transfers.assign(runs.size(), 0);
    else
      take_turns(runs);
    seen_.times.exposed += std::max<std::int64_t>(0, last - computed_until_);
    compose(reduced, elements, called);
  }

  void take_turns(const std::vector<const KinetoTransfer*>& runs) {
    StepTimes& times = seen_.times;
    std::vector<UnderWay> under_way;
    for (const KinetoTransfer* run : runs) under_way.push_back({run->begin, run->end});
    const Turns turns = turns_of(under_way, step_.begin);
    times.in_flight = turns.in_flight;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::int64_t begin = turns.begins[i], end = runs[i]->end;
      times.transfers.push_back(end - begin);
      const bool before_forward = end <= first_forward_;
      if (before_forward) times.exposed += uncovered(begin, end);
    }
  }

  // Of a time before the forward pass, that in which no batch is read or copied.
  std::int64_t uncovered(std::int64_t begin, std::int64_t end) const {
    std::int64_t left = std::max<std::int64_t>(0, end - begin);
    auto at = std::ranges::lower_bound(loading_, begin, {}, [](const auto& part) { return part.second; });
    for (; at != loading_.end() && at->first < end; ++at)
      left -= std::max<std::int64_t>(0, std::min(end, at->second) - std::max(begin, at->first));
    return left;
  }

  void compose(const std::vector<std::size_t>& reduced, const std::vector<std::int64_t>& elements,
               const std::vector<std::int64_t>& called) {
    StepShape& shape = seen_.shape;
    shape.gradients.assign(shape.layers.size(), 0);
    std::vector<std::int64_t> sizes;
    std::vector<Bytes> bytes;
    for (const Parameter& p : parameters_) {
      const bool known = p.elements >= 0 && p.element_bytes > 0;
      std::int64_t size = 0;
      if (known && __builtin_mul_overflow(p.elements, p.element_bytes, &size))
        throw_error(ErrorCode::bad_file, "{}: expected gradients of less than 2^63 bytes, got {} elements",
                    t_.path, p.elements);
      seen_.sizes_known = seen_.sizes_known && known;
      sizes.push_back(known ? p.elements : -1);
      bytes.push_back({size});
      shape.gradients[static_cast<std::size_t>(p.layer)] += size;
    }
    std::optional<Groups> groups;
    if (seen_.sizes_known && !sizes.empty()) groups = match_buckets(sizes, elements);
    seen_.buckets_matched = groups.has_value() || reduced.empty() || !seen_.sizes_known;
    if (groups && !reduced.empty()) {
      Groups buckets = *groups;
      buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
      if (!buckets.empty() && buckets.front() == 0) buckets.erase(buckets.begin());
      if (!buckets.empty()) seen_.caps = caps_of(bytes, buckets);
      seen_.without_gradients = static_cast<int>(groups->size() - buckets.size());
    }
    std::size_t at = 0;
    for (std::size_t b = 0; b < reduced.size(); ++b) {
      StepShape::Transfer& transfer = shape.transfers[reduced[b]];
      const std::size_t from = at;
      if (groups) {
        at = (*groups)[b];
      } else {
        while (at < parameters_.size() && parameters_[at].ready <= called[b]) ++at;
      }
      std::set<int> layers;
      for (std::size_t i = from; i < at; ++i) layers.insert(parameters_[i].layer);
      transfer.layers.assign(layers.rbegin(), layers.rend());  // in the order of the backward pass
      // Where sizes are only known of all: the layer that completes it, since nothing is sent before.
      if (!seen_.sizes_known && at > from)
        shape.gradients[static_cast<std::size_t>(parameters_[at - 1].layer)] += transfer.bytes;
    }
  }

  const KinetoTrace& t_;
  const KinetoStep& step_;
  std::vector<const KinetoOp*> ops_;
  std::vector<int> layer_of_;          // by op: the layer that it is, or whose backward it is; or -1
  std::vector<Owner> owner_;           // by op
  std::vector<Parameter> parameters_;  // in the order in which they are ready
  int main_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> loading_;  // work before the forward pass
  std::int64_t first_forward_ = -1;                             // of the work of the first layer
  std::int64_t first_backward_ = -1, last_backward_ = -1, computed_until_ = 0;
  std::int64_t rest_ = 0;
  StepSeen seen_;
};

}  // namespace

std::optional<StepSeen> see_step(const KinetoTrace& trace, const KinetoStep& step) {
  return StepViewer(trace, step).see();
}

}  // namespace talweg::train
