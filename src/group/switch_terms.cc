#include "group/switch_terms.h"

#include <memory>

#include "group/group_impl.h"
#include "group/switch_streams.h"
#include "group/work.h"
#include "protocol/outbox.h"
#include "wire/aggregation.h"

namespace talweg::group {

std::optional<SwitchTerms> switch_terms(const Group& group) {
  const auto* const own = dynamic_cast<const GroupImpl*>(&group);
  const std::shared_ptr<const SwitchStreams> switches = own == nullptr ? nullptr : own->switches();
  if (switches == nullptr) return std::nullopt;
  const SwitchWish& wish = switches->wish();
  SwitchTerms terms{wish.always, wish.sparse, 4, own->switch_block()};
  if (const auto format = format_of(wish, DataType::f32)) terms.float_bytes = wire::mean_bytes(*format);
  return terms;
}

const char* way_of(const Work& work) {
  const auto* const own = dynamic_cast<const WorkImpl*>(&work);
  return protocol::name(own == nullptr ? protocol::SumWay::none : own->way());
}

}  // namespace talweg::group
