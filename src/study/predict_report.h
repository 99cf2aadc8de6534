// What study_step() found, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/predict_study.h"

namespace talweg::study {

// Without --wide, lines have at most 120 characters.
std::string to_text(const StepQuestion& question, const StepStudy& study, bool wide);
// Names carry their units. `talweg compare` reads it back (comparable.h).
nlohmann::json to_json(const StepQuestion& question, const StepStudy& study);

// "resnet50: 161 layers, 102 MB of gradients, batch of 64", and of the network what it is and what transfers
// take on it.
std::string job_line(const StepQuestion& question);
std::string network_line(const StepQuestion& question);
// What was measured, and how well the model plays it back; empty where nothing was.
std::string measured_line(const StepQuestion& question, const StepStudy& study);
// What the device was seen to wait for within passes, and the caps of the buckets that were seen; empty where
// a trace tells neither.
std::string gaps_line(const StepQuestion& question);
std::string buckets_line(const StepQuestion& question);
// "forward 12.1 ms, backward 3.2 ms, all_reduce of 12 buckets 30.1 ms, update 1 ms".
std::string critical_path_text(const train::Job& job, const train::Prediction& prediction);
// What the plan is and gains, and from where on more bandwidth does not help.
std::string plan_line(const StepStudy& study);
std::string bandwidth_line(const StepStudy& study);
// Whether a change makes half a percent of difference.
bool matters(const WhatIf& change);
// N times the step of one rank, over the step; N where the step takes no time.
double speed_up_of(const StepQuestion& question, const StepStudy& study, const StepRow& row);

}  // namespace talweg::study
