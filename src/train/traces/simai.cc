// Workloads of SimAI and ASTRA-sim (text), and aicb's lists of transfers (CSV).
//
// A text workload says how it is run in parallel, how many layers follow, and of each layer its times in ns:
//
//   HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 all_gpus: 16 checkpoints: 0
//   2
//   embedding  -1  14356000  NONE       0       4756000   ALLGATHER  357468  1  REDUCESCATTER  1889785610  100
//   layer1     -1  10948000  ALLREDUCE  119162  19502000  NONE       0       1  NONE           0           100
//
// by blanks: name, what it depends on, then time, collective and bytes of the forward pass, of the gradients
// of its input and of those of its weights, and the time of its update. Transfers of weights' gradients carry
// their layer; the others carry activations. Those go within groups of model_parallel_NPU_group ranks, that
// share a layer's work. Where such a group has several ranks, its transfers are left out: they take another
// network than the gradients do, which go between the groups. Nobody has measured how long transfers take, so
// their times are 0.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/trim.h"
#include "train/traces/importers.h"
#include "train/traces/kineto_event.h"

namespace talweg::train {
namespace {

constexpr std::size_t kFields = 12;
constexpr std::int64_t kMostTransfers = kMostLayers;  // of a step

class UniqueNames {
 public:
  std::string unique(std::string_view wanted) {
    const int before = count_[std::string(wanted)]++;
    return before == 0 ? std::string(wanted) : fmt::format("{}.{}", wanted, before + 1);
  }

 private:
  std::map<std::string, int> count_;
};

// "NONE" is none.
std::optional<Exchange> exchange_of(const Lines& lines, std::string_view op, std::string_view bytes,
                                    std::vector<int> layers) {
  const Bytes size{whole_number(lines, bytes, "bytes of a collective", kLargest.value)};
  if (op == "NONE" || op == "None") return std::nullopt;
  const auto collective = collective_of(op);
  if (!collective)
    lines.fail(fmt::format("expected a collective such as ALLREDUCE, or NONE, got \"{}\"", op));
  return Exchange{*collective, std::move(layers), size, {}, {}};
}

// Fields of one line; quotes hold commas together.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

struct AicbRow {
  Exchange exchange;
  std::int64_t count = 0;
};
struct AicbStep {
  Layer model{.name = "model"};
  std::vector<AicbRow> rows{};
  std::int64_t transfers = 0;
};

}  // namespace

TraceJob import_simai(const std::string& text, const std::string& origin) {
  Lines lines(text, origin);
  TraceJob read{.kind = TraceKind::simai};
  Job& job = read.job;
  job.name = name_of_file(origin);
  job.origin = Origin::estimated;
  std::string_view line;
  if (!lines.next(line)) lines.fail("expected how the workload is run in parallel");
  const auto header = words_of(line);
  const auto count_of = [&](std::string_view key, int otherwise) {
    const auto at = std::ranges::find(header, key);
    if (at == header.end() || std::next(at) == header.end()) return otherwise;
    const std::string what(key.substr(0, key.size() - 1));
    return static_cast<int>(
        std::max<std::int64_t>(1, whole_number(lines, *std::next(at), what.c_str(), kMostRanks)));
  };
  const std::int64_t group = count_of("model_parallel_NPU_group:", 1), stages = count_of("pp:", 1);
  const std::int64_t replica = group * stages, all = count_of("all_gpus:", 0);
  if (all % replica != 0)
    lines.fail(
        fmt::format("expected all_gpus to be a multiple of model_parallel_NPU_group x pp, got {} and {} x {}",
                    all, group, stages));
  job.ranks = static_cast<int>(std::max<std::int64_t>(1, all / replica));
  if (!lines.next(line)) lines.fail("expected the number of layers");
  const std::int64_t wanted = whole_number(lines, trimmed(line), "number of layers", kMostLayers);
  UniqueNames names;
  std::vector<Exchange> forward, backward;  // the latter from the last layer to the first
  int within = 0;                           // groups: transfers
  while (static_cast<std::int64_t>(job.layers.size()) < wanted && lines.next(line)) {
    const auto f = words_of(line);
    if (f.empty()) continue;
    if (f.size() < kFields)
      lines.fail(fmt::format("expected {} fields of a layer, got {}", kFields, f.size()));
    const auto index = static_cast<int>(job.layers.size());
    Layer& layer = job.layers.emplace_back();
    layer.name = names.unique(f[0]);
    layer.forward = duration_of(lines, f[2], "forward time", 1);
    layer.backward = {duration_of(lines, f[5], "input gradient's time", 1).value +
                      duration_of(lines, f[8], "weight gradient's time", 1).value};
    layer.update = duration_of(lines, f[11], "update time", 1);
    std::vector<Exchange> of_layer;
    const auto add = [&](std::optional<Exchange> activations, std::vector<Exchange>& to) {
      if (!activations) return;
      if (group > 1) {
        ++within;
      } else {
        to.push_back(std::move(*activations));
      }
    };
    add(exchange_of(lines, f[3], f[4], {}), forward);
    add(exchange_of(lines, f[6], f[7], {}), of_layer);
    if (auto e = exchange_of(lines, f[9], f[10], {index})) {
      layer.gradient = e->bytes;
      of_layer.push_back(std::move(*e));
    }
    backward.insert(backward.begin(), of_layer.begin(), of_layer.end());
  }
  if (static_cast<std::int64_t>(job.layers.size()) < wanted)
    lines.fail(fmt::format("expected {} layers, got {}: the file is cut", wanted, job.layers.size()));
  while (lines.next(line))
    if (!trimmed(line).empty()) lines.fail(fmt::format("expected no more than {} layers", wanted));
  job.exchanges = std::move(forward);
  job.exchanges.insert(job.exchanges.end(), backward.begin(), backward.end());
  if (group > 1)
    read.notes.push_back(fmt::format(
        "{} ranks share each layer (model_parallel_NPU_group): what they send each other of "
        "activations is left out (transfers: {}), and ranks are counted in replicas of the model, "
        "between which gradients go",
        group, within));
  read.notes.emplace_back(
      "a workload for simulators: how long transfers take is not in it, and their times are 0");
  return checked(std::move(read), origin);
}

// comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
// CommType.all_reduce,CommGroup.dp_group,128,4096,test_step,None,None,,None,None,None,1
//
// What lies between two rows epoch_end is a step; the last one counts. _elapsed_time is in ms.
TraceJob import_aicb(const std::string& text, const std::string& origin) {
  Lines lines(text, origin);
  TraceJob read{.kind = TraceKind::aicb};
  Job& job = read.job;
  job.name = name_of_file(origin);
  std::string_view line;
  if (!lines.next(line)) lines.fail("expected a line of columns");
  std::map<std::string, std::size_t> column;
  for (const std::string& name : csv_fields(line)) column.emplace(trimmed(name), column.size());
  for (const char* name :
       {"comm_type", "comm_group", "comm_group_size", "msg_size", "_elapsed_time", "count"})
    if (!column.contains(name)) lines.fail(fmt::format("expected a column {}", name));
  AicbStep step, last;
  const auto close_step = [&] {
    if (step.transfers > 0 || step.model.backward.value > 0) last = std::exchange(step, {});
  };
  while (lines.next(line)) {
    if (trimmed(line).empty()) continue;
    const auto row = csv_fields(line);
    if (row.size() < column.size())
      lines.fail(fmt::format("expected {} fields, got {}", column.size(), row.size()));
    const auto field = [&](const char* name) { return trimmed(row[column[name]]); };
    const std::string_view type = field("comm_type");
    if (type.ends_with("epoch_end")) {
      close_step();
      continue;
    }
    const std::string_view elapsed = field("_elapsed_time");
    const Nanoseconds time = elapsed.empty() || elapsed == "None"
                                 ? Nanoseconds{}
                                 : duration_of(lines, elapsed, "_elapsed_time", 1e6);
    if (type.ends_with("computation")) {
      step.model.backward.value += time.value;
      if (step.model.backward > kLongest) lines.fail("expected at most an hour of computation in a step");
      continue;
    }
    const auto op = collective_of(type);
    if (!op) lines.fail(fmt::format("expected a collective such as CommType.all_reduce, got \"{}\"", type));
    const Bytes bytes{whole_number(lines, field("msg_size"), "msg_size", kLargest.value)};
    const std::int64_t count = whole_number(lines, field("count"), "count", kMostLayers);
    if (const auto size = field("comm_group_size"); size != "None" && !size.empty())
      job.ranks =
          std::max(job.ranks, static_cast<int>(whole_number(lines, size, "comm_group_size", kMostRanks)));
    const bool of_gradients = field("comm_group").ends_with("dp_group") &&
                              (*op == Collective::all_reduce || *op == Collective::reduce_scatter);
    if (count == 0) continue;
    step.transfers += count;
    if (step.transfers > kMostTransfers)
      lines.fail(fmt::format("expected at most {} transfers in a step", kMostTransfers));
    step.rows.push_back(
        {{*op, of_gradients ? std::vector<int>{0} : std::vector<int>{}, bytes, time, {}}, count});
    if (of_gradients) step.model.gradient.value += count * bytes.value;
    if (step.model.gradient > kLargest)
      lines.fail(fmt::format("expected gradients of at most {} bytes", kLargest.value));
  }
  close_step();
  for (const AicbRow& row : last.rows)
    job.exchanges.insert(job.exchanges.end(), static_cast<std::size_t>(row.count), row.exchange);
  job.layers = {last.model};
  if (job.exchanges.empty()) lines.fail("expected at least one transfer");
  read.notes.emplace_back(
      "a list of transfers: it has no layers, so one stands for all; its backward time is that of all "
      "computation");
  return checked(std::move(read), origin);
}

}  // namespace talweg::train
