#include <fmt/format.h>

#include <algorithm>

#include "train/step_dag.h"

namespace talweg::train {
namespace {

std::string in_words(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string transfer_words(const Prediction& p) {
  if (p.startups > p.transfers / 2)
    return fmt::format("{} {} a step, and start-ups are {:.0f} % of their time", p.calls,
                       p.calls == 1 ? "transfer" : "transfers", 100 * p.startups / p.transfers);
  if (p.transfers > p.parts.forward + p.parts.backward)
    return fmt::format("transfers take {}, longer than the devices' passes", in_words(p.transfers));
  return fmt::format("transfers take {}, not all of it during the devices' passes", in_words(p.transfers));
}

}  // namespace

// What is, and not what would help: that is for those to say who have predicted it (what_helps()).
std::string bottleneck_words(const Prediction& p) {
  if (p.step <= 0) return "A step takes no time.";
  struct Part {
    double seconds;
    const char* what;
    std::string why;
  };
  const StepParts& parts = p.parts;
  const Part all[] = {
      {parts.busy(), "the devices compute", "computing is the largest part"},
      {parts.exposed, "they wait for transfers", p.transfers > 0 ? transfer_words(p) : ""},
      {parts.gap, "they wait for their hosts or other streams",
       "work is launched too late or waited for too often"},
      {parts.peer_wait, "they wait for ranks that are late", "ranks do not keep pace with each other"},
      {parts.input, "they wait for batches", "batches come later than they are needed"},
      {parts.overhead, "what runs between steps lasts", "nothing overlaps it"},
  };
  std::string text = fmt::format("Of {} a step, ", in_words(p.step));
  bool first = true;
  for (const Part& part : all) {
    if (part.seconds < 0.005 * p.step && !(first && &part == std::end(all) - 1)) continue;
    text += fmt::format("{}{} for {} ({:.0f} %)", first ? "" : ", ", part.what, in_words(part.seconds),
                        100 * part.seconds / p.step);
    first = false;
  }
  // The largest part and, where that is computing, the greatest of the waits that is more than a twentieth.
  const Part* most = std::ranges::max_element(all, {}, &Part::seconds);
  const Part* wait = std::max_element(all + 1, std::end(all),
                                      [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  if (!most->why.empty()) text += fmt::format(": {}", most->why);
  if (most == all && wait->seconds > 0.05 * p.step && !wait->why.empty()) text += "; " + wait->why;
  return text + ".";
}

}  // namespace talweg::train
