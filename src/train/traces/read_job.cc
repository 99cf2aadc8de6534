#include "train/traces/read_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/at.h"
#include "base/fail.h"
#include "base/printable.h"
#include "base/trim.h"
#include "train/traces/importers.h"
#include "train/traces/trace_file.h"

namespace talweg::train {
namespace {

constexpr std::size_t kHead = std::size_t{1} << 18;  // bytes that must be enough to see what a file is
constexpr std::size_t kMostText = std::size_t{256} << 20;
constexpr std::size_t kMostModel = std::size_t{4} << 30;  // of ONNX, with its weights

struct NamedKind {
  TraceKind kind;
  const char* name;
  TraceJob (*read)(const std::string& text, const std::string& origin);  // null: see read_job()
};

// What the exchanges carry of gradients may be less than their layers have, where it was compressed; but who
// wrote the file may have meant something else.
void compare_exchanges(TraceJob& read) {
  std::set<int> layers;
  Bytes sent, held;
  for (const Exchange& e : read.job.exchanges) {
    if (e.layers.empty() || (e.op != Collective::all_reduce && e.op != Collective::reduce_scatter)) continue;
    sent.value += e.bytes.value;
    layers.insert(e.layers.begin(), e.layers.end());
  }
  for (const int layer : layers) held.value += read.job.layers[at(layer)].gradient.value;
  if (std::abs(sent.value - held.value) > held.value / 100)
    read.notes.push_back(fmt::format("the exchanges carry {} of gradients, and their layers have {}",
                                     to_string(sent), to_string(held)));
}

TraceJob read_own(const std::string& text, const std::string& origin) {
  TraceJob read{.job = parse_job(text, origin)};
  compare_exchanges(read);
  return read;
}

constexpr NamedKind kKinds[] = {{TraceKind::job, "job", read_own},
                                {TraceKind::kineto, "kineto", nullptr},
                                {TraceKind::execution_trace, "execution trace", nullptr},
                                {TraceKind::chakra, "chakra", nullptr},
                                {TraceKind::simai, "simai", import_simai},
                                {TraceKind::aicb, "aicb", import_aicb},
                                {TraceKind::pipedream, "pipedream", import_pipedream},
                                {TraceKind::b_caffe, "b-caffe", import_b_caffe},
                                {TraceKind::onnx, "onnx", nullptr}};

const NamedKind& row_of(TraceKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const NamedKind& k) { return k.kind == kind; });
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_count(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

// [12, 9408, 15032, 1178], perhaps behind other words.
bool is_blob_line(std::string_view line) {
  const auto open = line.rfind('[');
  if (open == std::string_view::npos || !trimmed(line).ends_with(']')) return false;
  const auto fields = split(line.substr(open + 1, line.rfind(']') - open - 1), ",");
  return fields.size() >= 4 && fields.size() <= 5 && is_count(fields[0]) && is_count(fields[1]);
}

std::vector<std::string_view> first_lines(std::string_view head, std::size_t most) {
  std::vector<std::string_view> lines;
  while (!head.empty() && lines.size() < most) {
    const auto end = std::min(head.find('\n'), head.size());
    lines.push_back(trimmed(head.substr(0, end)));
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return lines;
}

// Whether the object that the text begins with has the key itself, not one of the values in it, where names
// that users gave may be anything.
bool has_key(std::string_view text, std::string_view key) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    const std::size_t begin = ++i;
    for (; i < text.size() && text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
    if (depth == 1 && i < text.size() && text.substr(begin, i - begin) == key &&
        trimmed(text.substr(i + 1)).starts_with(':'))
      return true;
  }
  return false;
}

std::optional<TraceKind> kind_of_json(std::string_view head, const std::string& path) {
  if (has_key(head, "nodes") && has(head, "chakra")) return TraceKind::execution_trace;
  if (has_key(head, "layers")) return TraceKind::job;
  const bool events = has_key(head, "traceEvents") || (head.starts_with('[') && has(head, "\"ph\""));
  if (!events) return std::nullopt;
  if (has_key(head, "schemaVersion")) return TraceKind::kineto;
  if (has(head, "\"FW.") || has(head, "\"BW.") || has(head, "\"Comm."))
    throw_error(ErrorCode::bad_file,
                "{}: is a trace of dPRO's, which does not say how large gradients are: expected one of "
                "PyTorch's profiler",
                path);
  return TraceKind::kineto;
}

std::optional<TraceKind> kind_of_text(std::string_view head) {
  const auto lines = first_lines(head, 64);
  if (lines.empty()) return std::nullopt;
  if (lines[0].starts_with("comm_type,")) return TraceKind::aicb;
  if (lines[0].starts_with("node") && has(lines[0], " -- ")) return TraceKind::pipedream;
  // Before those that lines of numbers tell, as a job may have such lines, too.
  if (head.starts_with("layers:") || has(head, "\nlayers:")) return TraceKind::job;
  if (std::any_of(lines.begin(), lines.end(), is_blob_line)) return TraceKind::b_caffe;
  if (lines.size() >= 2 && is_count(lines[1])) return TraceKind::simai;
  return std::nullopt;
}

// A length, then GlobalMetadata{version = 1}: "0.0.4" and its like.
bool is_chakra(std::string_view head) {
  return head.size() > 3 && static_cast<unsigned char>(head[0]) >= 3 && head[1] == '\x0a' && head[2] > 0 &&
         head[2] < 32 && head[3] >= '0' && head[3] <= '9';
}

// ModelProto{ir_version = 1, producer_name = 2 or opset_import = 8 or graph = 7}.
bool is_onnx(std::string_view head) {
  return head.size() > 3 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         (head[2] == '\x12' || head[2] == '\x3a' || head[2] == '\x42');
}

// `read` counts on from one file to the next.
OnRead watched(const Paths& paths, const WatchReading& watch, std::uint64_t& read) {
  if (!watch) return {};
  std::uint64_t all = 0;
  for (const std::string& path : paths) {
    std::error_code none;
    const std::uintmax_t size = std::filesystem::file_size(path, none);
    if (!none) all += size;
  }
  return [&watch, &read, all](std::size_t more) {
    read += more;
    watch(read, std::max(read, all));
  };
}

bool is_packed_of_others(std::string_view head) {
  return head.starts_with("PK\x03\x04") || head.starts_with("\x28\xb5\x2f\xfd") || head.starts_with("BZh") ||
         head.starts_with(
             "\xfd"
             "7zXZ");
}

}  // namespace

const char* name(TraceKind kind) {
  return row_of(kind).name;
}

TraceKind recognise_trace(const std::string& path) {
  const std::string all = read_head(path, kHead);
  const std::string_view head = all;
  const std::string_view text = trimmed(head);
  if (text.empty())
    throw_error(ErrorCode::bad_file, "{}: expected a trace of training, got an empty file", path);
  if (is_packed_of_others(head))
    throw_error(ErrorCode::bad_file,
                "{}: expected a file that is plain or packed by gzip, not by another packer", path);
  std::optional<TraceKind> kind;
  if (is_chakra(head)) {
    kind = TraceKind::chakra;
  } else if (is_onnx(head)) {
    kind = TraceKind::onnx;
  } else if (text.front() == '{' || (text.front() == '[' && !is_blob_line(first_lines(text, 1)[0]))) {
    kind = kind_of_json(text, path);
  } else {
    kind = kind_of_text(head);
  }
  if (kind) return *kind;
  std::string known;
  for (const NamedKind& k : kKinds) known += (known.empty() ? "" : ", ") + std::string(k.name);
  throw_error(ErrorCode::bad_file, "{}: no known kind of trace was recognised: expected one of {}", path,
              known);
}

TraceJob read_job(const std::vector<std::string>& paths, const Device& device, const WatchReading& watch) {
  if (paths.empty()) throw_error(ErrorCode::invalid_argument, "expected at least one trace");
  Paths traces, execution_traces;
  std::optional<TraceKind> kind;
  for (const std::string& path : paths) {
    const TraceKind of_file = recognise_trace(path);
    if (of_file == TraceKind::execution_trace) {
      execution_traces.push_back(path);
      continue;
    }
    if (kind && *kind != of_file)
      throw_error(ErrorCode::bad_file, "{}: is of kind {}, and {} of kind {}: expected traces of one kind",
                  path, name(of_file), traces[0], name(*kind));
    kind = of_file;
    traces.push_back(path);
  }
  if (!execution_traces.empty() && kind != TraceKind::kineto)
    throw_error(ErrorCode::bad_file,
                "{}: a PyTorch execution trace has no times: expected the Kineto trace beside it",
                execution_traces[0]);
  std::uint64_t read_so_far = 0;
  const OnRead on_read = watched(paths, watch, read_so_far);
  if (kind == TraceKind::kineto) return import_kineto(traces, execution_traces, on_read);
  if (kind == TraceKind::chakra) return import_chakra(traces, on_read);
  if (traces.size() > 1)
    throw_error(ErrorCode::bad_file, "{}: expected one file, as {} is of kind {}", traces[1], traces[0],
                name(*kind));
  if (kind == TraceKind::onnx)
    return import_onnx(read_trace(traces[0], kMostModel, on_read), traces[0], device);
  TraceJob read = row_of(*kind).read(read_trace(traces[0], kMostText, on_read), traces[0]);
  read.kind = *kind;
  return read;
}

std::string name_of_file(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  for (const std::string_view ending :
       {".gz", ".json", ".trace", ".pt", ".txt", ".csv", ".log", ".onnx", ".et"})
    if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
  return name;
}

TraceJob checked(TraceJob read, const std::string& origin) {
  read.job.name = printable(read.job.name);
  for (Layer& layer : read.job.layers) layer.name = printable(layer.name);
  if (const auto problem = find_problem(read.job)) {
    static constexpr const char* kSections[] = {"job", "layers", "exchanges", "probes"};
    throw_error(ErrorCode::bad_file, "{}: {}[{}]: {}", origin, kSections[static_cast<int>(problem->section)],
                problem->index, problem->text);
  }
  return read;
}

}  // namespace talweg::train
