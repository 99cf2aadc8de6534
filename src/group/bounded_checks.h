// What is asked of bounded sums' options and calls before anybody else hears of them.
#pragma once

#include "observe/recorder.h"
#include "protocol/bounded/exchange.h"
#include "protocol/bounded/loss_budget.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

protocol::LossParts parts_of(const BoundedLossOptions& options);
protocol::ExchangeClasses classes_of(const PacketClasses& classes, double depth);
const char* name(LossPolicy policy);
const char* name(observe::CallNote::Kind kind);  // "bounded all_reduce", "bounded push", "bounded pull"
// All throw Error{invalid_argument}. `what`: "bounded all_reduce". `part`: of the vector, what `out` is, and
// in a pull `in`. `adds`: this rank is no dedicated server.
void check_options(const BoundedLossOptions& options, int ranks);
void check_size(const char* what, std::size_t count, DataType type);
void check_priority(const char* what, int priority);
void check_summable(const char* what, DataType type);
void check_sum(const char* what, const BoundedCall& call, LossPolicy policy, BoundedPart part, bool adds);
void check_pull(const char* what, const BoundedCall& call, BoundedPart part);

}  // namespace talweg::group
