// What ranks did over time, in a form that a page's script draws: a row for each, its time cut into steps,
// and for each step a digit that says what there was of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "sim/frame_record.h"
#include "sim/ranks.h"
#include "sim/workload_run.h"

namespace talweg::study {

inline constexpr std::size_t kMostLanes = 64;  // rows; of more ranks, those on the critical path and a sample

// {begin, end, rows: [[name, begin, end, sends, receives]], path: [[row, row, sent, received]], said}:
// seconds. Digits of `sends` and `receives`: 1 up, 2 down, 3 both. Of `results`, those of the last call,
// which `record` is of. `said`: about the path, for people; rows that are not shown are -1 in it.
nlohmann::json call_lanes(const cluster::Cluster& cluster, const sim::Ranks& ranks,
                          const sim::FrameRecord& record);

// {begin, end, rows: [[name, begin, end, does]], path: [[row, row, began, ended]], said}. Digits of `does`: 4
// computes, 8 takes part in a collective, 12 both. The path is back from who ended last, along each rank's
// own steps, and from a collective to the rank that began it last.
nlohmann::json step_lanes(const cluster::Cluster& cluster, const std::vector<sim::StepNote>& steps);

}  // namespace talweg::study
