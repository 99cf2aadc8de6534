// A study of a training step as a page that stands alone: result cards, strategies side by side, the step
// over time, what if, and a table of the layers.
#pragma once

#include <string>

#include "study/predict_study.h"

namespace talweg::study {

std::string predict_page(const StepQuestion& question, const StepStudy& study);

}  // namespace talweg::study
