// Training jobs from what others have recorded:
//
//   const TraceJob read = read_job({"rank0.json.gz", "rank1.json.gz"});
//   predict(read.job, ...);
//
// kind             file                                             what it becomes
// job              Talweg's own YAML or JSON                         see job.h
// kineto           PyTorch profiler's JSON, one file for each rank   layers by operators; transfers joined over ranks
// execution trace  PyTorch's (JSON), beside Kineto's                 sizes that Kineto's lacks, by rf_id
// chakra           Chakra's protobuf, one file for each rank         a layer for each run of compute nodes
// simai            SimAI's and ASTRA-sim's text workloads            a layer for each line; transfers within model-parallel groups left out
// aicb             aicb's CSV                                        transfers; no layers' times
// pipedream        PipeDream's graph.txt                             a layer for each node
// b-caffe          B-Caffe's logs                                    a layer for each run of blobs of one time
// onnx             ONNX graphs                                       layers with times estimated from FLOPs
//
// What a file is, its content says, not its name; all may be packed by gzip. What an importer cannot express
// it refuses by name (dPRO's traces, which have no sizes); what it had to assume stands in the notes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "train/job.h"
#include "train/models.h"
#include "train/traces/buckets.h"

namespace talweg::train {

enum class TraceKind { job, kineto, execution_trace, chakra, simai, aicb, pipedream, b_caffe, onnx };
const char* name(TraceKind kind);

struct TraceJob {
  Job job{};
  TraceKind kind = TraceKind::job;
  int steps = 0;  // whose means the times are; 0: the trace does not say
  // Of a step on one rank; the mean over ranks and steps. Where a trace does not tell these apart they are 0.
  Nanoseconds busy{};         // the device computes
  Nanoseconds launch_gaps{};  // it waits until the host has launched the next work
  Nanoseconds stream_gaps{};  // work is launched and waits: for another stream, or for memory
  Nanoseconds exposed{};  // before the forward pass, and from the last layer's backward to the last transfer
  Nanoseconds peer_wait{};                  // within transfers, for ranks that come later; the sum over all
  std::optional<BucketCaps> bucket_caps{};  // with which DDP makes the buckets that were seen
  std::vector<std::string> notes{};         // what was assumed, a sentence each
};

// What the file is. Throws Error{bad_file} of one line that names what is known, if it is none of that.
TraceKind recognise_trace(const std::string& path);

// Called as files are read: how many bytes of them so far, of how many in all. What it throws ends the
// reading.
using WatchReading = std::function<void(std::uint64_t read, std::uint64_t all)>;

// All paths are of one kind, but for execution traces beside Kineto's. Where a file has no times (ONNX), they
// are estimated for the device. Throws Error{bad_file}, and Error{invalid_argument} for no path.
TraceJob read_job(const std::vector<std::string>& paths, const Device& device = find_device("v100"),
                  const WatchReading& watch = {});

}  // namespace talweg::train
