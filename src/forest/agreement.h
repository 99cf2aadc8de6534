// Whether a collective's data tell its ranks that all of them have begun the same.
//
// Where every rank contributes, and every rank writes only what it has from all, nothing is written anywhere
// before all have been heard. In all other collectives of a group each rank announces itself to all, with a
// frame without data, and sends none before it has heard from all (protocol/session/session.h). Ranks keep
// this rule, and plans are priced by it.
#pragma once

#include "forest/forest.h"

namespace talweg::forest {

bool data_carry_agreement(const Request& request);

}  // namespace talweg::forest
