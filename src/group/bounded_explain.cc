#include "group/bounded_explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "group/bounded_checks.h"
#include "protocol/bounded/adaptive_deadline.h"
#include "protocol/bounded/loss_budget.h"
#include "protocol/bounded/shape.h"
#include "steer/bounded_plan.h"
#include "wire/traffic_class.h"

namespace talweg::group {

namespace {

using protocol::AdaptiveDeadline;

class BoundedWords {
 public:
  BoundedWords(const GroupImpl& group, const BoundedLossOptions& options, const BoundedCarrier& carrier,
               std::size_t count, DataType type)
      : group_(group),
        options_(options),
        carrier_(carrier),
        count_(count),
        type_(type),
        servers_(options.servers) {
    std::ranges::sort(servers_);
    const auto parts = protocol::bounded_parts(count, static_cast<std::size_t>(group.size()), servers_);
    part_ = *std::ranges::max_element(parts);
    if (carrier.stride == 0) return;
    shape_ = {0, part_ * size_of(type), carrier.stride};
    protocol::require_possible(shape_);
  }

  std::string in_datagrams() const {
    const std::shared_ptr<const forest::CostModel> model = group_.model();
    forest::PackingMemo memo;
    const steer::BoundedPlan plan = steer::plan_bounded(
        forest::even_request(Collective::all_reduce, group_.size(), 0, static_cast<std::int64_t>(count_),
                             static_cast<std::int64_t>(size_of(type_))),
        *model, servers_, memo);
    const double words = model->seconds(plan.words, true), push = model->seconds(plan.push, true),
                 pull = model->seconds(plan.pull, true);
    const double all = words + push + pull;
    return fmt::format(
        "bounded, direct, up to {} packets of {} to a server, predicted {:.4g} ms\n"
        "way: direct reduce-scatter, of which a part may be lost; then direct all-gather of the sums, "
        "exactly, over the group's connections\n"
        "{}carried by: {}\n"
        "{}{}"
        "exact calls: the first {} of each size lose nothing\n"
        "{}"
        "deadline: {}; once no more is missing than may be, the rest is waited for {:g} to {:g} % of what "
        "calls of the size take\n"
        "predicted: {:.4g} ms where nothing is lost: {:.4g} to agree on the call, {:.4g} for the "
        "reduce-scatter (push), {:.4g} for the all-gather (pull)\n",
        shape_.packets(), to_string(Bytes{std::min<std::int64_t>(shape_.stride, bytes())}), all * 1e3,
        servers(), datagrams(), limits(), missing(), AdaptiveDeadline::kWarmUp, classes(), deadline(),
        AdaptiveDeadline::kLeastPart * 100, AdaptiveDeadline::kMostPart * 100, all * 1e3, words * 1e3,
        push * 1e3, pull * 1e3);
  }

  // `otherwise`: what is said where no switch is there.
  std::string by_switch(const BoundedSwitch::Expected& expected, const std::string& otherwise) const {
    const std::string limits =
        expected.ppm == 0
            ? "p: nothing may be missing"
            : fmt::format("p: {:g}: of each rank's {} elements up to {} may be missing, in whole blocks",
                          expected.ppm / 1e6, count_, expected.most_missing);
    return fmt::format(
        "switch, {}\n"
        "way: ranks agree on the call; a sum in the network, of which a part may be missing; ranks tell each "
        "other that they have it\n"
        "carried by: datagrams to the switch and back: {}\n"
        "{}\n"
        "{}"
        "exact calls: the first {} sums of a job at the switch lose nothing; it is a new job when the switch "
        "was lost\n"
        "deadline: {}; a switch of which nothing comes is left before that\n"
        "otherwise: {}\n",
        expected.seconds ? fmt::format("predicted {:.4g} ms", *expected.seconds * 1e3)
                         : std::string("not measured"),
        expected.where, limits, missing(), expected.exact_sums, deadline(),
        otherwise.substr(0, otherwise.find('\n')));
  }

  std::string over_the_group() const {
    return fmt::format(
        "bounded, over the group's connections: {}\n"
        "way: an all_reduce of the group; a push is its reduce_scatter\n"
        "{}carried by: {}\n"
        "missing: nothing\n"
        "deadline: {}\n",
        group_.explain(Collective::all_reduce, count_, type_), servers(), connections(), deadline());
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(shape_.bytes); }
  std::string who(int r) const { return fmt::format("rank {} ({})", r, group_.host_of(r)); }

  std::string servers() const {
    const std::string who =
        servers_.empty() || static_cast<int>(servers_.size()) == group_.size()
            ? "all ranks"
            : fmt::format("{} {}{}", servers_.size() == 1 ? "rank" : "ranks", fmt::join(servers_, ", "),
                          options_.dedicated ? ", which add nothing of their own" : "");
    return fmt::format("servers: {}; each sums up to {} of {} elements\n", who, part_, count_);
  }

  std::string datagrams() const {
    const PassingWays& ways = carrier_.ways;
    std::string text =
        fmt::format("datagrams, as IP packets of {} bytes pass between all ranks", ways.packet);
    if (ways.packet < ways.wanted)
      text += fmt::format(" ({} do not, from {} to {})", ways.wanted, who(ways.from), who(ways.to));
    if (carrier_.paths.count > 1)
      text += fmt::format("; this rank sends by {} paths{}", carrier_.paths.count,
                          live::origin_of(carrier_.paths));
    return text;
  }

  std::string connections() const {
    const PassingWays& ways = carrier_.ways;
    return fmt::format("the group's connections, as {} of {} comes to {}",
                       ways.packet == 0 ? std::string("no datagram")
                                        : fmt::format("no datagram of more than {} bytes", ways.packet),
                       who(ways.from), who(ways.to));
  }

  // In bytes, as receivers count.
  std::string limits() const {
    const protocol::LossBounds bounds = protocol::bounds_of(parts_of(options_));
    if (bounds.tensor_ppm == 0) return "p: nothing may be missing\n";
    const int others = group_.size() - (options_.dedicated ? static_cast<int>(servers_.size()) : 1);
    protocol::LossBudget budget(bounds);
    for (int r = 0; r < others; ++r) budget.add(static_cast<std::uint16_t>(r), shape_.bytes);
    budget.begin();
    const std::uint64_t of_one = budget.of_tensor(shape_.bytes), on_average = budget.of_sender(0);
    const std::uint64_t of_all = budget.of_iteration();
    const std::uint64_t most = std::min({of_one, of_all, on_average * bounds.burst});
    const std::uint64_t tail = shape_.bytes == 0 ? 1 : shape_.tail();
    const std::uint64_t packets = most < tail ? 0 : 1 + (most - tail) / shape_.stride;
    const auto part = [](std::uint32_t ppm) { return ppm / 1e6; };
    return fmt::format(
        "p: {:g}: of what a rank sends a server in a call up to {} of {} bytes may be missing\n"
        "p_sender: {:g}: on average over calls of one size up to {} bytes; what is not missing in one may be "
        "in the next {}\n"
        "p_call: {:g}: of what all others send a server in a call up to {} bytes\n"
        "together: {}\n",
        part(bounds.tensor_ppm), of_one, shape_.bytes, part(bounds.sender_ppm), on_average, bounds.burst - 1,
        part(bounds.iteration_ppm), of_all,
        packets == 0 ? std::string("less than a packet: nothing is ever missing")
                     : fmt::format("up to {} of a rank's {} packets in a call", packets, shape_.packets()));
  }

  std::string missing() const {
    return options_.policy == LossPolicy::rescale
               ? "missing: left out of the mean, which is over the ranks whose part has come\n"
               : "missing: counts as zero; with a residual it comes with the next call, without one it is "
                 "gone\n";
  }

  std::string classes() const {
    const PacketClasses& c = options_.classes;
    std::string text = "classes: ";
    if (std::max(c.droppable_front, c.droppable_back) > 0) {
      const bool even = c.droppable_front == c.droppable_back;
      text += fmt::format(
          "of each rank's packets {:g} %{}, those of the smallest values, are droppable (Not-ECT); the "
          "others are important (ECT(0)){}",
          c.droppable_front * 100, even ? "" : fmt::format(" to {:g} %, by depth", c.droppable_back * 100),
          c.keep_important ? ", and none of these may be missing" : "");
    } else {
      text += "all packets are important (ECT(0))";
    }
    if (c.queues == 1) return text + "; DSCP best effort\n";
    std::vector<const char*> names;
    for (int i = 0; i < c.queues; ++i)
      names.push_back(wire::kDscpNames[classes_of(c, (i + 0.5) / c.queues).priority]);
    return fmt::format("{}; DSCP by depth, from the first layers to the last: {}; control {}\n", text,
                       fmt::join(names, ", "), wire::kDscpNames[0]);
  }

  std::string deadline() const {
    return fmt::format("{:g} s for a call without one of its own",
                       static_cast<double>(group_.timeout_ns({})) * 1e-9);
  }

  const GroupImpl& group_;
  const BoundedLossOptions& options_;
  const BoundedCarrier& carrier_;
  const std::size_t count_;
  const DataType type_;
  std::vector<int> servers_;  // ascending; none: all
  std::size_t part_ = 0;      // elements of the largest
  protocol::BoundedShape shape_;
};

}  // namespace

std::string explain_bounded(const GroupImpl& group, const BoundedLossOptions& options,
                            const BoundedCarrier& carrier, const BoundedSwitch* by_switch, std::size_t count,
                            DataType type) {
  const char* const what = name(observe::CallNote::Kind::bounded);
  check_summable(what, type);
  check_size(what, count, type);
  if (group.size() == 1) return "bounded, of one rank, which sends nothing\n";
  if (count == 0) return "bounded, of no elements: ranks only agree on the call\n";
  const BoundedWords words(group, options, carrier, count, type);
  const std::string between_ranks = carrier.stride > 0 ? words.in_datagrams() : words.over_the_group();
  if (by_switch == nullptr)
    return carrier.no_switch.empty()
               ? between_ranks
               : between_ranks + fmt::format("by a switch: no: {}\n", carrier.no_switch);
  const BoundedSwitch::Expected expected = by_switch->expect(count, type);
  return expected.why_not.empty()
             ? words.by_switch(expected, between_ranks)
             : between_ranks + fmt::format("by a switch: no: {}: {}\n", expected.why_not, expected.where);
}

}  // namespace talweg::group
