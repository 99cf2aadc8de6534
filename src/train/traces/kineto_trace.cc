#include "train/traces/kineto_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/fail.h"
#include "text/json_stream.h"
#include "train/job.h"
#include "train/traces/kineto_event.h"
#include "train/traces/kineto_transfers.h"
#include "train/traces/trace_file.h"

namespace talweg::train {
namespace {

using text::JsonStream;

constexpr std::int64_t kClockRounding =
    2'000;  // ns: old traces have whole microseconds, and round begin and duration
constexpr std::int64_t kMostAhead = 1'000'000;  // ns that a kernel may seem to begin before its launch
constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
constexpr std::string_view kOptimizerStep = "Optimizer.step";
// Stands around the operators of a compiled model, which are those that are gone back through.
constexpr std::string_view kCompiledRegion = "Torch-Compiled Region";
constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";

struct Launch {
  std::int64_t correlation, begin;
  std::int32_t thread;
};

// "gloo:all_reduce" and its like stand for what ran; nccl's stand for the call, its kernels ran.
std::optional<Collective> transfer_that_ran(std::string_view name) {
  const auto colon = name.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 12 || name.substr(colon).starts_with("::"))
    return {};
  const std::string_view backend = name.substr(0, colon);
  if (backend == "nccl" ||
      !std::all_of(backend.begin(), backend.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
    return {};
  return collective_of(name.substr(colon + 1));
}

bool is_collective_kernel(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("rccl") || name.starts_with("mscclKernel");
}

// What an operator says of the one around it.
void absorb(KinetoOp& outer, const KinetoOp& inner) {
  if (outer.kind == KinetoOp::Kind::accumulate && inner.kind == KinetoOp::Kind::accumulate &&
      outer.elements < 0) {
    outer.elements = inner.elements;
    outer.element_bytes = inner.element_bytes;
  }
  if (outer.kind == KinetoOp::Kind::backward && outer.sequence < 0) outer.sequence = inner.sequence;
}

bool within(const KinetoOp& inner, const KinetoOp& outer) {
  return inner.begin >= outer.begin && inner.end <= outer.end;
}

class KinetoReader {
 public:
  KinetoReader(const std::string& path, const std::vector<ExecutionSizes>& sizes, const OnRead& on_read)
      : sizes_(sizes), on_read_(on_read) {
    t_.path = path;
  }

  KinetoTrace read() {
    TraceFile file(t_.path, on_read_);
    JsonStream json([&](char* into, std::size_t most) { return file.read(into, most); }, t_.path);
    bool has_events = false;
    if (json.kind() == JsonStream::Kind::array) {  // Chrome's format allows for the events alone
      events(json);
      has_events = true;
    } else {
      json.begin_object();
      while (json.next_member()) {
        if (json.key() == "traceEvents") {
          if (has_events) json.fail("expected one list of traceEvents: these are two traces in one file");
          events(json);
          has_events = true;
        } else {
          header(json);
        }
      }
    }
    json.end();
    if (!has_events) json.fail("expected a list \"traceEvents\"");
    finish();
    return std::move(t_);
  }

 private:
  void header(JsonStream& json) {
    const std::string key(json.key());
    if (key == "baseTimeNanoseconds" && json.kind() == JsonStream::Kind::number) {
      t_.base = json.integer();
    } else if (key == "distributedInfo" && json.kind() == JsonStream::Kind::object) {
      json.begin_object();
      while (json.next_member()) {
        if (json.key() == "rank") {
          t_.rank = small(json, "rank");
        } else if (json.key() == "world_size") {
          t_.world = small(json, "world_size");
        } else if (json.key() == "backend" && json.kind() == JsonStream::Kind::string) {
          t_.backend = json.string();
        } else {
          json.skip();
        }
      }
    } else {
      json.skip();
    }
  }
  static int small(JsonStream& json, const char* what) {
    const std::int64_t value = json.integer();
    if (value < 0 || value > kMostRanks)
      json.fail(fmt::format("{}: expected 0 to {}, got {}", what, kMostRanks, value));
    return static_cast<int>(value);
  }

  void events(JsonStream& json) {
    KinetoEvent event;
    json.begin_array();
    while (json.next_item()) {
      read_event(json, event);
      if (!event.complete) continue;
      if (event.group_size > t_.largest_group && event.group_size <= kMostRanks)
        t_.largest_group = static_cast<int>(event.group_size);
      take(event, json);
    }
  }

  void take(const KinetoEvent& e, const JsonStream& json) {
    switch (e.kind) {
      case EventKind::cpu_op:
        return take_op(e, json);
      case EventKind::annotation:
        return take_annotation(e, json);
      case EventKind::runtime:
        if (e.correlation >= 0 &&
            (e.name.find("aunch") != std::string::npos || e.name.find("emcpy") != std::string::npos ||
             e.name.find("emset") != std::string::npos))
          launches_.push_back({e.correlation, e.begin, thread(e, json)});
        return;
      case EventKind::kernel:
      case EventKind::copy:
        return take_kernel(e);
      case EventKind::other:
        return;
    }
  }

  void take_kernel(const KinetoEvent& e) {
    if (is_collective_kernel(e.name)) {
      const auto op = collective_of(e.collective.empty() ? std::string_view(e.name) : e.collective);
      if (op) t_.runs.push_back(transfer(*op, e));
      return;
    }
    const auto copies = [&](const char* way) {
      return e.kind == EventKind::copy && e.name.find(way) != std::string::npos;
    };
    t_.kernels.push_back(
        {e.begin, e.begin + e.duration, e.correlation, -1, -1, copies("HtoD"), copies("DtoH")});
  }

  KinetoTransfer transfer(Collective op, const KinetoEvent& e) const {
    KinetoTransfer t{.op = op,
                     .begin = e.begin,
                     .end = e.begin + e.duration,
                     .elements = std::max(e.in_elements, e.out_elements),
                     .element_bytes = e.element_bytes,
                     .called = e.begin,
                     .function = e.function,
                     .correlation = e.correlation};
    if (t.elements < 0) t.elements = e.elements;
    add_size(e, t.elements, t.element_bytes);
    return t;
  }
  template <class Width>
  void add_size(const KinetoEvent& e, std::int64_t& elements, Width& element_bytes) const {
    for (const ExecutionSizes& sizes : sizes_) {
      if (sizes.pid != e.pid) continue;
      const auto found = sizes.by_function.find(e.function);
      if (found == sizes.by_function.end()) continue;
      if (elements < 0) elements = found->second.elements;
      if (element_bytes == 0) element_bytes = static_cast<Width>(found->second.element_bytes);
    }
  }

  void take_annotation(const KinetoEvent& e, const JsonStream& json) {
    const std::string_view name = e.name;
    constexpr std::string_view kStep = "ProfilerStep#";
    if (name.starts_with(kStep)) {
      std::int64_t number = 0;
      const auto [end, error] =
          std::from_chars(name.data() + kStep.size(), name.data() + name.size(), number);
      if (error != std::errc() || end != name.data() + name.size())
        json.fail(fmt::format("expected a number of a step, got \"{}\"", name));
      if (t_.pid >= 0 && e.pid != t_.pid && has_step_)
        json.fail(
            fmt::format("expected the steps of one process, got those of {} and {}: one file for each rank",
                        t_.pid, e.pid));
      has_step_ = true;
      t_.pid = e.pid;
      t_.steps.push_back({number, e.begin, e.begin + e.duration});
    } else if (name.starts_with("Optimizer.")) {
      keep(op_of(e, KinetoOp::Kind::optimizer, name.substr(0, name.find('#')), json));
    } else if (const auto op = transfer_that_ran(name)) {
      t_.runs.push_back(transfer(*op, e)), t_.runs.back().thread = thread(e, json);
    }
  }

  void take_op(const KinetoEvent& e, const JsonStream& json) {
    const std::string_view name = e.name;
    if (name.starts_with("c10d::")) {
      if (const auto op = collective_of(name))
        t_.calls.push_back(transfer(*op, e)), t_.calls.back().thread = thread(e, json);
      return;
    }
    if (name == "record_param_comms") {
      if (const auto op = collective_of(e.collective)) recorded_.push_back(transfer(*op, e));
      return;
    }
    if (const auto op = transfer_that_ran(name)) {
      t_.runs.push_back(transfer(*op, e)), t_.runs.back().thread = thread(e, json);
      return;
    }
    if (name.starts_with(kCompiledRegion)) return;
    if (t_.pid < 0) t_.pid = e.pid;
    if (name.starts_with(kEngine)) {
      const std::string_view what = name.substr(kEngine.size());
      return keep(
          op_of(e, what == kAccumulate ? KinetoOp::Kind::accumulate : KinetoOp::Kind::backward, what, json));
    }
    keep(op_of(e, name == kAccumulate ? KinetoOp::Kind::accumulate : KinetoOp::Kind::plain, name, json));
  }

  KinetoOp op_of(const KinetoEvent& e, KinetoOp::Kind kind, std::string_view name, const JsonStream& json) {
    KinetoOp op{.begin = e.begin,
                .end = e.begin + e.duration,
                .sequence = e.sequence,
                .thread = static_cast<std::int16_t>(thread(e, json)),
                .kind = kind};
    if (kind == KinetoOp::Kind::accumulate) {
      op.elements = e.elements;
      op.element_bytes = static_cast<std::uint8_t>(e.element_bytes);
      add_size(e, op.elements, op.element_bytes);
    }
    name_ = name;
    return op;
  }

  // Most operators stand within the one that was kept last on their thread, and go at once.
  void keep(KinetoOp op) {
    std::ptrdiff_t& outer = outer_[static_cast<std::size_t>(op.thread)];
    if (outer >= 0) {
      KinetoOp& before = t_.ops[static_cast<std::size_t>(outer)];
      if (within(op, before)) return absorb(before, op);
    }
    op.name = number_of(name_);
    outer = static_cast<std::ptrdiff_t>(t_.ops.size());
    t_.ops.push_back(op);
  }

  std::int32_t number_of(std::string_view name) {
    const auto [at, is_new] =
        names_.try_emplace(std::string(name), static_cast<std::int32_t>(t_.names.size()));
    if (is_new) t_.names.emplace_back(name);
    return at->second;
  }
  std::int32_t thread(const KinetoEvent& e, const JsonStream& json) {
    const auto [at, is_new] = threads_.try_emplace(e.tid, static_cast<std::int32_t>(threads_.size()));
    if (is_new) outer_.push_back(-1);
    if (threads_.size() > std::numeric_limits<std::int16_t>::max())
      json.fail("expected at most 32767 threads");
    return at->second;
  }

  [[noreturn]] void refuse_trace(const std::string& text) const {
    throw_error(ErrorCode::bad_file, "{}: {}", t_.path, text);
  }

  void finish() {
    if (t_.world > 0 && t_.rank >= t_.world)
      refuse_trace(fmt::format("distributedInfo: rank: expected 0 to {}, as world_size is {}, got {}",
                               t_.world - 1, t_.world, t_.rank));
    check_steps();
    nest();
    check_passes();
    check_marks();
    if (!t_.ops.empty()) {
      t_.first = t_.ops.front().begin;
      t_.last = t_.ops.back().end;
    }
    find_launches();
    pair_transfers(t_.calls, std::move(recorded_), t_.runs);
    take_copies(t_.calls, t_.runs, t_.kernels);
    std::sort(t_.kernels.begin(), t_.kernels.end(),
              [](const KinetoKernel& a, const KinetoKernel& b) { return a.launched < b.launched; });
  }

  void check_steps() {
    std::sort(t_.steps.begin(), t_.steps.end(),
              [](const KinetoStep& a, const KinetoStep& b) { return a.number < b.number; });
    for (std::size_t i = 1; i < t_.steps.size(); ++i) {
      const KinetoStep &a = t_.steps[i - 1], &b = t_.steps[i];
      if (a.number == b.number)
        refuse_trace(
            fmt::format("ProfilerStep#{} is there twice: these are two traces in one file", a.number));
      if (b.begin + kClockRounding < a.end)
        refuse_trace(fmt::format("the clock jumps: ProfilerStep#{} begins {} ns before ProfilerStep#{} ends",
                                 b.number, a.end - b.begin, a.number));
    }
  }

  // What goes back through an operator comes behind it. Sequence numbers are a thread's own: those of the
  // thread with the most operators count. Other threads', of replicas or of gradients' gradients, may be the
  // same numbers, so that what goes back in an earlier step goes back through something else.
  void check_passes() const {
    const auto is_forward = [](const KinetoOp& op) {
      return op.kind == KinetoOp::Kind::plain && op.sequence >= 0;
    };
    std::vector<std::size_t> forward(outer_.size());  // by thread
    for (const KinetoOp& op : t_.ops)
      if (is_forward(op)) ++forward[static_cast<std::size_t>(op.thread)];
    const auto main = std::ranges::max_element(forward) - forward.begin();
    std::unordered_map<std::int64_t, const KinetoOp*> early;  // by sequence number
    std::int64_t highest = -1;
    for (const KinetoOp& op : t_.ops) {
      if (op.kind == KinetoOp::Kind::backward && op.sequence > highest) early.emplace(op.sequence, &op);
      if (!is_forward(op) || op.thread != main) continue;
      highest = std::max(highest, op.sequence);
      const auto before = early.find(op.sequence);
      if (before != early.end() && !is_of_an_earlier_step(*before->second, op))
        refuse_trace(fmt::format("the clock jumps: {} begins {} ns before {}, which it goes back through",
                                 t_.names[static_cast<std::size_t>(before->second->name)],
                                 op.begin - before->second->begin,
                                 t_.names[static_cast<std::size_t>(op.name)]));
    }
  }

  bool is_of_an_earlier_step(const KinetoOp& a, const KinetoOp& b) const {
    return std::ranges::any_of(t_.steps, [&](const KinetoStep& step) {
      return a.begin >= step.begin && a.begin < step.end && b.begin >= step.end;
    });
  }

  // What goes back through a step, or updates by it, stands within its mark. A pass of its own behind a mark
  // is none of the step's: a recording may end in the middle of the next one.
  void check_marks() const {
    std::size_t at = 0;
    bool went_back = false, forward_behind = false;
    std::int64_t highest = -1;  // of the mark's forward operators
    for (const KinetoOp& op : t_.ops) {
      while (at < t_.steps.size() && op.begin >= t_.steps[at].begin) {
        ++at;
        went_back = forward_behind = false;
        highest = -1;
      }
      if (at == 0) continue;
      const KinetoStep& step = t_.steps[at - 1];
      const bool back = op.kind == KinetoOp::Kind::backward || op.kind == KinetoOp::Kind::accumulate;
      const bool forward = op.kind == KinetoOp::Kind::plain && op.sequence >= 0;
      if (op.begin < step.end) {
        went_back = went_back || back;
        if (forward) highest = std::max(highest, op.sequence);
        continue;
      }
      forward_behind = forward_behind || forward;
      if (op.begin <= step.end + kClockRounding) continue;
      const std::string& name = t_.names[static_cast<std::size_t>(op.name)];
      if ((back && (!went_back || (op.sequence >= 0 && op.sequence <= highest))) ||
          (name == kOptimizerStep && !forward_behind))
        refuse_trace(
            fmt::format("the clock jumps: {} begins {} ns after ProfilerStep#{} ends, whose step it is of",
                        name, op.begin - step.end, step.number));
    }
  }

  // Drops what stands within others, where the file did not say the outer one first.
  void nest() {
    std::sort(t_.ops.begin(), t_.ops.end(), [](const KinetoOp& a, const KinetoOp& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::fill(outer_.begin(), outer_.end(), -1);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < t_.ops.size(); ++i) {
      const KinetoOp op = t_.ops[i];
      std::ptrdiff_t& outer = outer_[static_cast<std::size_t>(op.thread)];
      if (outer >= 0) {
        KinetoOp& before = t_.ops[static_cast<std::size_t>(outer)];
        if (op.begin < before.end && op.end > before.end + kClockRounding)
          refuse_trace(
              fmt::format("the clock jumps: {} begins within {} and ends {} ns after it on one thread",
                          t_.names[static_cast<std::size_t>(op.name)],
                          t_.names[static_cast<std::size_t>(before.name)], op.end - before.end));
        if (op.begin < before.end) {
          absorb(before, op);
          continue;
        }
      }
      outer = static_cast<std::ptrdiff_t>(kept);
      t_.ops[kept++] = op;
    }
    t_.ops.resize(kept);
  }

  void find_launches() {
    std::sort(launches_.begin(), launches_.end(),
              [](const Launch& a, const Launch& b) { return a.correlation < b.correlation; });
    const auto of = [&](std::int64_t correlation) -> const Launch* {
      const auto at = std::lower_bound(launches_.begin(), launches_.end(), correlation,
                                       [](const Launch& l, std::int64_t c) { return l.correlation < c; });
      return at != launches_.end() && at->correlation == correlation && correlation >= 0 ? &*at : nullptr;
    };
    for (KinetoKernel& k : t_.kernels) {
      k.launched = k.begin;
      if (const Launch* launch = of(k.correlation)) {
        k.launched = launch->begin;
        k.thread = launch->thread;
        if (k.begin + kMostAhead < k.launched)
          refuse_trace(
              fmt::format("the clock jumps: a kernel begins {} ns before it is launched (correlation {})",
                          k.launched - k.begin, k.correlation));
      }
    }
    for (KinetoTransfer& run : t_.runs)
      if (const Launch* launch = of(run.correlation)) {
        run.called = launch->begin;
        run.thread = launch->thread;
      }
    launches_.clear();
  }

  KinetoTrace t_;
  const std::vector<ExecutionSizes>& sizes_;
  const OnRead& on_read_;
  bool has_step_ = false;
  std::string name_;  // of the operator at hand
  std::unordered_map<std::string, std::int32_t> names_;
  std::unordered_map<std::int64_t, std::int32_t> threads_;
  std::vector<std::ptrdiff_t> outer_;  // by thread: the operator that was kept last, or -1
  std::deque<Launch> launches_;
  std::vector<KinetoTransfer> recorded_;  // record_param_comms
};

}  // namespace

KinetoTrace read_kineto(const std::string& path, const std::vector<ExecutionSizes>& sizes,
                        const OnRead& on_read) {
  return KinetoReader(path, sizes, on_read).read();
}

}  // namespace talweg::train
