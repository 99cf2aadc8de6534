#include "train/traces/made_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace talweg::train {
namespace {

constexpr std::int64_t kAccumulate = 1000, kCall = 500, kLaunch = 200, kHost = 2000, kCopy = 300;  // ns

class KinetoWriter {
 public:
  KinetoWriter(const MadeTrace& made, int rank, const Sink& sink)
      : m_(made),
        rank_(rank),
        sink_(sink),
        pid_(made.pid + rank),
        backward_thread_(made.cuda ? pid_ + 9 : pid_) {}

  void write() {
    put("{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [],\n");
    if (m_.distributed)
      put(
          fmt::format("  \"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}, "
                      "\"pg_count\": 1}},\n",
                      device_runs() ? "nccl" : "gloo", rank_, m_.world));
    put(fmt::format("  \"baseTimeNanoseconds\": {},\n  \"traceEvents\": [\n", m_.base));
    put(fmt::format(
        "  {{\"ph\": \"M\", \"name\": \"process_name\", \"ts\": 0, \"pid\": {}, \"tid\": 0, \"args\": "
        "{{\"name\": \"python\"}}}}",
        pid_));
    now_ = device_ = m_.begin;
    for (int s = 0; s < m_.steps; ++s) {
      step(m_.first_step + s);
      sink_(text_);
      text_.clear();
    }
    put("\n  ],\n  \"traceName\": \"made\"\n}\n");
    sink_(text_);
  }

 private:
  void put(std::string_view text) { text_ += text; }
  bool device_runs() const { return m_.cuda && !m_.host_runs; }  // transfers
  std::int64_t next_id() { return m_.ids ? ++function_ : 0; }

  void event(const char* category, std::string_view name, std::int64_t thread, std::int64_t begin,
             std::int64_t duration, std::string_view arguments) {
    fmt::format_to(
        std::back_inserter(text_),
        ",\n  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {},\n    "
        "\"ts\": "
        "{}.{:03}, \"dur\": {}.{:03},\n    \"args\": {{\n      \"External id\": {}{}{}\n    }}\n  }}",
        category, name, pid_, thread, begin / 1000, begin % 1000, duration / 1000, duration % 1000, ++id_,
        arguments.empty() ? "" : ", ", arguments);
  }
  void op(std::string_view name, std::int64_t thread, std::int64_t begin, std::int64_t duration,
          std::string_view arguments) {
    const std::string all =
        fmt::format("\"Record function id\": {}{}{}", next_id(), arguments.empty() ? "" : ", ", arguments);
    const auto children = [&] {
      for (int i = 0; i < m_.children; ++i)
        event("cpu_op", "aten::empty", thread, begin + duration * i / (m_.children + 1),
              duration / (m_.children + 1),
              "\"Concrete Inputs\": [\"\", \"[16, 8]\"], \"Input Dims\": [[], [2, 3]]");
    };
    if (m_.children_first) children();
    event("cpu_op", name, thread, begin, duration, all);
    if (!m_.children_first) children();
    for (int i = 0; i < m_.strangers; ++i)
      event("python_function", "torch/nn/modules/module.py(1773): _call_impl \\\"x\\\"", thread, begin,
            duration, "\"Python id\": 17, \"Python parent id\": 16, \"Python module id\": 3");
  }

  // Kernels run one after another; `gap` is between this one and the one before.
  void kernel(std::int64_t launch_at, std::int64_t thread, std::int64_t duration, std::int64_t gap,
              const char* category, const char* name) {
    const std::int64_t begin = device_ + gap;
    event("cuda_runtime", "cudaLaunchKernel", thread, launch_at, kLaunch,
          fmt::format("\"correlation\": {}", ++correlation_));
    event(category, name, 7, begin, duration,
          fmt::format("\"stream\": 7, \"correlation\": {}, \"grid\": [1, 1, 1]", correlation_));
    device_ = begin + duration;
  }

  // Between host and device, on a stream of its own.
  void copy(const char* way, std::int64_t thread, std::int64_t launch_at, std::int64_t begin,
            std::int64_t duration) {
    event("cuda_runtime", "cudaMemcpyAsync", thread, launch_at, kLaunch,
          fmt::format("\"correlation\": {}", ++correlation_));
    event("gpu_memcpy", fmt::format("Memcpy {} (Pinned)", way), 21, begin, duration,
          fmt::format("\"stream\": 21, \"correlation\": {}, \"bytes\": 1024", correlation_));
  }

  // An operator at `now_`, with its kernel where there are kernels.
  void compute(std::string_view name, std::int64_t thread, std::int64_t duration,
               std::string_view arguments) {
    if (!m_.cuda) {
      op(name, thread, now_, duration, arguments);
      now_ += duration + pending_gap_;
      pending_gap_ = 0;
      return;
    }
    const std::int64_t gap = std::exchange(gap_, 0);
    if (m_.late && gap > 0) now_ = std::max(now_, device_ + gap - kLaunch);
    op(name, thread, now_, kHost, arguments);
    // The device is ahead of no launch: it waits for the host at least until then.
    const std::int64_t launch = m_.late && gap > 0 ? device_ + gap : now_ + kLaunch;
    device_ = std::max(device_, first_kernel_ ? launch : device_);
    first_kernel_ = false;
    kernel(launch, thread, duration, gap, "kernel", "void at::native::vectorized_elementwise_kernel<4>()");
    now_ = std::max(now_ + kHost, launch + kLaunch);
  }

  void step(int number) {
    const std::int64_t begin = now_ = std::max(now_, device_);
    device_ = begin;
    first_kernel_ = true;
    gap_ = 0;
    std::string saved = std::exchange(text_, {});
    if (m_.input > 0 && !m_.cuda) compute("aten::randn", pid_, m_.input, "");
    if (m_.cuda && m_.copy > 0) {
      op("aten::to", pid_, now_, kHost, "");
      device_ = now_ + kLaunch;
      kernel(now_ + kLaunch, pid_, m_.copy, 0, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)");
      first_kernel_ = false;
      now_ += kHost;
    }
    run_free_ = now_;
    for (const MadeTransfer& t : m_.broadcast) {
      call("broadcast_", "broadcast", pid_, t);
      if (!m_.cuda) now_ = std::max(now_, run_free_);
    }
    if (m_.cuda && !m_.broadcast.empty()) device_ = std::max(device_, run_free_);
    forward();
    if (number - m_.first_step == m_.jump_step)
      for (std::int64_t* time : {&now_, &device_, &run_free_}) *time += m_.jump;
    const std::int64_t backward_end = backward();
    now_ = std::max({now_, run_free_, backward_end});
    for (const MadeTransfer& t : m_.behind) {
      call("allreduce_", device_runs() ? "AllReduce" : "all_reduce", pid_, t);
      now_ = std::max(now_, run_free_);
    }
    if (m_.cuda) device_ = std::max(device_, run_free_);
    if (m_.optimizer) {
      const std::int64_t from = now_;
      const std::int64_t host = m_.cuda ? 2 * kHost : m_.update;
      event("user_annotation", "Optimizer.step#SGD.step", pid_, from, host, "");
      if (m_.cuda) {
        op("aten::_foreach_add_", pid_, from, kHost, "");
        device_ = std::max(device_, from + kLaunch);
        kernel(from + kLaunch, pid_, m_.update, 0, "kernel", "multi_tensor_apply_kernel");
      }
      now_ = from + host;
    }
    now_ = std::max(now_, device_) + m_.tail;
    std::string body = std::exchange(text_, std::move(saved));
    if (m_.marks)
      event("user_annotation", fmt::format("ProfilerStep#{}", number), pid_, begin, now_ - begin, "");
    text_ += body;
    now_ += 1000;
  }

  void forward() {
    const std::int64_t begin = now_;
    for (const MadeLayer& l : m_.layers) {
      pending_gap_ = l.forward_gap;
      compute(l.op, pid_, l.forward,
              fmt::format("\"Sequence number\": {}, \"Fwd thread id\": 0", sequence_++));
      gap_ = l.forward_gap;
    }
    if (m_.compiled) event("cpu_op", "Torch-Compiled Region: 0/0", pid_, begin, now_ - begin, "");
  }

  // When the last layer's work ends.
  std::int64_t backward() {
    std::size_t bucket = 0, held = 0;
    std::int64_t elements = 0, sequence = sequence_, end = now_;
    for (std::size_t i = m_.layers.size(); i-- > 0;) {
      const MadeLayer& l = m_.layers[i];
      const auto parameters = static_cast<std::int64_t>(l.parameters.size());
      const std::string name = l.op.substr(l.op.rfind(':') + 1);
      --sequence;
      compute(fmt::format("autograd::engine::evaluate_function: {}Backward0", name), backward_thread_,
              m_.cuda ? l.backward : l.backward - parameters * kAccumulate,
              fmt::format("\"Sequence number\": {}, \"Fwd thread id\": 1", sequence));
      for (const std::int64_t p : l.parameters) {
        elements += p;
        ++held;
        const bool full = bucket < m_.buckets.size() && held == m_.buckets[bucket];
        accumulate(p, full, bucket, elements);
        if (!full) continue;
        ++bucket;
        held = 0;
        elements = 0;
      }
      end = m_.cuda ? device_ : now_;
      if (i > 0) {
        if (m_.cuda) {
          gap_ = l.backward_gap;
        } else {
          now_ += l.backward_gap;
        }
      }
    }
    return end;
  }

  void accumulate(std::int64_t elements, bool full, std::size_t bucket, std::int64_t bucket_elements) {
    const std::int64_t begin = now_;
    const std::string shape =
        m_.shapes ? fmt::format("\"Input type\": [\"float\"], \"Input Dims\": [[{}]]", elements) : "";
    const bool calls = full && bucket < m_.reduced.size();
    const std::int64_t duration = kAccumulate + (calls ? kCall : 0);
    op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", backward_thread_, begin,
       duration, "");
    op("torch::autograd::AccumulateGrad", backward_thread_, begin + 100, 200, shape);
    now_ = begin + kAccumulate;
    if (calls) {
      MadeTransfer t = m_.reduced[bucket];
      if (t.elements == 0) t.elements = bucket_elements;
      call("allreduce_", device_runs() ? "AllReduce" : "all_reduce", backward_thread_, t);
    }
    now_ = begin + duration;
  }

  void call(std::string_view c10d, std::string_view name, std::int64_t thread, const MadeTransfer& t) {
    const char* type = t.element_bytes == 8 ? "long int" : "float";
    event("cpu_op", fmt::format("c10d::{}", c10d), thread, now_, kCall,
          fmt::format("\"Record function id\": {}, \"Input type\": [\"TensorList\", \"\"], \"Input Dims\": "
                      "[[[{}]], []]",
                      next_id(), t.elements));
    const std::int64_t wait = t.waits[static_cast<std::size_t>(rank_) % t.waits.size()];
    const std::int64_t free = std::max(run_free_, now_ + kCall);
    const std::int64_t begin = m_.host_runs ? std::max(free, device_) : free;
    run_free_ = begin + t.time + wait;
    if (m_.host_runs) {
      // A thread of the host waits from `free` for the device to come to the copy.
      const std::int64_t back = begin + (t.time + wait) / 2;
      copy("DtoH", thread, now_ + 100, std::max(device_, now_ + 100), std::min(kCopy, back - begin));
      event("user_annotation", fmt::format("gloo:{}", name), pid_ + 40, free, back - free,
            fmt::format("\"Record function id\": {}, \"Input type\": [\"{}\"], \"Input Dims\": [[{}]]",
                        next_id(), type, t.elements));
      copy("HtoD", pid_ + 40, std::max(free, back - 100), back, run_free_ - back);
    } else if (!m_.cuda) {
      event("user_annotation", fmt::format("gloo:{}", name), pid_ + 40, begin, t.time + wait,
            fmt::format("\"Record function id\": {}, \"Input type\": [\"{}\"], \"Input Dims\": [[{}]]",
                        next_id(), type, t.elements));
    } else {
      event("cuda_runtime", "cudaLaunchKernelExC", thread, now_ + 100, kLaunch,
            fmt::format("\"correlation\": {}", ++correlation_));
      event("kernel",
            fmt::format("{}_{}_RING_LL(ncclDevComm*)", m_.old_names ? "ncclKernel" : "ncclDevKernel", name),
            20, begin, t.time + wait,
            fmt::format("\"stream\": 20, \"correlation\": {}, \"Collective name\": \"{}\", \"In msg "
                        "nelems\": {}, \"Out "
                        "msg nelems\": {}, \"dtype\": \"{}\", \"Group size\": {}",
                        correlation_, name == "broadcast" ? "broadcast" : "allreduce", t.elements, t.elements,
                        t.element_bytes == 8 ? "Long" : "Float", m_.world));
    }
    now_ += kCall;
  }

  const MadeTrace& m_;
  const int rank_;
  const Sink& sink_;
  const std::int64_t pid_, backward_thread_;
  std::string text_;
  std::int64_t now_ = 0, device_ = 0, run_free_ = 0;  // of the host, of the compute stream, of the transfers
  std::int64_t gap_ = 0, pending_gap_ = 0;
  bool first_kernel_ = true;
  std::int64_t id_ = 0, function_ = 0, correlation_ = 0, sequence_ = 50;
};

}  // namespace

void write_kineto(const MadeTrace& made, int rank, const Sink& sink) {
  KinetoWriter(made, rank, sink).write();
}

std::string kineto_text(const MadeTrace& made, int rank) {
  std::string text;
  write_kineto(made, rank, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace talweg::train
