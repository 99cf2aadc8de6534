// A second opinion on forests: pushes symbolic contributions through the edges, element by element, and
// compares with what the collective is defined to deliver. Slow and simple; shares no code with verify().
#pragma once

#include "forest/forest.h"

namespace talweg::forest {

// Whether every receiver gets every element once, with every contribution in it once, and nobody gets more.
bool computes_its_collective(const Forest& forest);

}  // namespace talweg::forest
