// Logs of B-Caffe, which MG-WFBP's simulations were made from. Of each learnable blob a line, behind glog's
// prefix:
//
//   I0621 10:11:12.131415  1234 distributed.cpp:100] [0, 9408, 15032, 1178]
//   I0621 10:11:12.131416  1234 distributed.cpp:100] [1, 64, 15032, 241, 0]
//
// [blob, elements (fp32), backward time of the layer that owns it, of its transfer, of the merged transfer],
// in us; the last is there in runs that merged. Blobs are numbered in the order of the forward pass. A
// layer's weights and its bias both repeat the layer's time, so neighbours of equal times are one layer: two
// blobs at most, the second not the larger.
//
// Several blocks may follow one another; the first may be all zero, before anything was measured. The last
// one counts.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/trim.h"
#include "train/traces/importers.h"

namespace talweg::train {
namespace {

struct Blob {
  std::int64_t elements = 0;
  Nanoseconds backward, transfer, merged;
};
using Block = std::map<std::int64_t, Blob>;

bool is_measured(const Block& block) {
  for (const auto& [id, blob] : block)
    if (blob.backward.value > 0 || blob.transfer.value > 0) return true;
  return false;
}

// What stands in the last brackets of the line; empty: no such line.
std::string_view bracketed(std::string_view line) {
  line = trimmed(line);
  const auto open = line.rfind('[');
  if (!line.ends_with(']') || open == std::string_view::npos) return {};
  return line.substr(open + 1, line.size() - open - 2);
}

// "... [3, 64,"
bool is_cut(std::string_view line) {
  const auto open = line.rfind('[');
  return open != std::string_view::npos && open + 1 < line.size() &&
         line.find_first_not_of("0123456789., \t", open + 1) == std::string_view::npos;
}

struct Blocks {
  Block last;
  int count = 0;
  bool merged = false;
};

Blocks read_blocks(Lines& lines) {
  Blocks blocks;
  Block block;
  const auto close = [&] {
    if (!block.empty() && block.rbegin()->first != static_cast<std::int64_t>(block.size()) - 1)
      lines.fail(fmt::format("expected blobs 0 to {} in a block, got {} of them: lines are missing",
                             block.rbegin()->first, block.size()));
    if (!is_measured(block)) return block.clear();
    ++blocks.count;
    blocks.last = std::exchange(block, {});
  };
  std::size_t columns = 0;
  for (std::string_view line; lines.next(line);) {
    const std::string_view inner = bracketed(line);
    if (is_cut(line)) lines.fail("expected a ] at the end: the line is cut");
    if (inner.empty()) continue;
    const auto fields = split(inner, ",");
    if (fields.size() != 4 && fields.size() != 5)
      lines.fail(fmt::format("expected [blob, elements, backward us, transfer us] or one more, got {} fields",
                             fields.size()));
    if (columns != 0 && fields.size() != columns)
      lines.fail(fmt::format("expected {} fields, as before", columns));
    columns = fields.size();
    const std::int64_t id = whole_number(lines, fields[0], "blob", kMostLayers);
    if (block.contains(id)) close();
    Blob& blob = block[id];
    blob.elements = whole_number(lines, fields[1], "elements", kLargest.value / 4);
    blob.backward = duration_of(lines, fields[2], "backward time", 1e3);
    blob.transfer = duration_of(lines, fields[3], "time of the transfer", 1e3);
    if (columns == 5) blob.merged = duration_of(lines, fields[4], "time of the merged transfer", 1e3);
  }
  if (!blocks.last.empty() && block.size() < blocks.last.size() && is_measured(block))
    lines.fail(fmt::format("expected {} blobs, as in the block before, got {}: the file is cut",
                           blocks.last.size(), block.size()));
  close();
  if (blocks.last.empty()) lines.fail("expected a block with times: all of them are 0");
  blocks.merged = columns == 5;
  return blocks;
}

}  // namespace

TraceJob import_b_caffe(const std::string& text, const std::string& origin) {
  Lines lines(text, origin);
  const Blocks blocks = read_blocks(lines);
  TraceJob read{.kind = TraceKind::b_caffe};
  Job& job = read.job;
  job.name = name_of_file(origin);
  std::map<std::int64_t, int> layer_of;
  const Blob* first = nullptr;  // of the layer
  bool has_bias = false;
  for (const auto& [id, blob] : blocks.last) {
    const bool same = first != nullptr && !has_bias && blob.backward == first->backward &&
                      blob.backward.value > 0 && blob.elements <= first->elements;
    if (same) {
      has_bias = true;
    } else {
      job.layers.push_back({.name = fmt::format("blob{}", id), .backward = blob.backward});
      first = &blob;
      has_bias = false;
    }
    job.layers.back().gradient.value += blob.elements * 4;
    layer_of[id] = static_cast<int>(job.layers.size()) - 1;
  }
  Exchange merged;
  for (auto at = blocks.last.rbegin(); at != blocks.last.rend(); ++at) {
    const auto& [id, blob] = *at;
    const int layer = layer_of[id];
    if (!blocks.merged) {
      job.exchanges.push_back({Collective::all_reduce, {layer}, {blob.elements * 4}, blob.transfer, {}});
      continue;
    }
    merged.bytes.value += blob.elements * 4;
    if (merged.layers.empty() || merged.layers.back() != layer) merged.layers.push_back(layer);
    if (blob.merged.value == 0) continue;
    merged.time = blob.merged;
    job.exchanges.push_back(std::exchange(merged, {}));
  }
  if (!merged.layers.empty()) {
    job.exchanges.push_back(merged);
    read.notes.emplace_back("the first layers are in no merged transfer: theirs has a time of 0");
  }
  read.steps = 1;
  read.notes.emplace_back(
      "forward passes and layers without parameters are not in this log: a step takes longer");
  if (blocks.count > 1) read.notes.push_back(fmt::format("the last of {} blocks with times", blocks.count));
  return checked(std::move(read), origin);
}

}  // namespace talweg::train
