#include "forest/agreement.h"

#include "base/collectives.h"

namespace talweg::forest {

// Who gets no data has heard from nobody, but in a collective of which that is the whole point.
bool data_carry_agreement(const Request& request) {
  if (!facts(request.op).sums) return false;
  if (!moves_data(request.op)) return true;
  const int differ = facts(request.op).output == Extent::whole ? 1 : request.ranks;
  for (int rank = 0; rank < differ; ++rank)
    if (output_count(request, rank) == 0) return false;
  return true;
}

}  // namespace talweg::forest
