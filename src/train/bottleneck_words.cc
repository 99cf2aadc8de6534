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
    return fmt::format(
        "{} transfers a step, and start-ups are {:.0f} % of their time: fewer and larger ones would help",
        p.calls, 100 * p.startups / p.transfers);
  if (p.transfers > p.parts.forward + p.parts.backward)
    return fmt::format(
        "the network is busy for {}, longer than the devices compute: fewer bytes or a faster network help "
        "most",
        in_words(p.transfers));
  return fmt::format(
      "the network is busy for {} only, so sending earlier, or the most urgent first, would help",
      in_words(p.transfers));
  if (p.step <= 0) return "A step takes no time.";
}

}  // namespace

std::string bottleneck_words(const Prediction& p) {
  struct Part {
    double seconds;
    const char* what;
    std::string why;
  };
  const StepParts& parts = p.parts;
  const Part all[] = {
      {parts.busy(), "the devices compute", "computing sets the pace"},
      {parts.exposed, "they wait for transfers", p.transfers > 0 ? transfer_words(p) : ""},
      {parts.gap, "they wait for their hosts or other streams",
       "work is launched too late or waited for too often; a faster network or device would not help"},
      {parts.peer_wait, "they wait for ranks that are late", "ranks do not keep pace with each other"},
      {parts.input, "they wait for batches", "reading and copying batches is slower than the rest of a step"},
      {parts.overhead, "what runs between steps lasts", "whatever runs between steps sets the pace"},
  };
  std::string text = fmt::format("Of {} a step, ", in_words(p.step));
  bool first = true;
  for (const Part& part : all) {
    if (part.seconds < 0.005 * p.step && !(first && &part == std::end(all) - 1)) continue;
    text += fmt::format("{}{} for {} ({:.0f} %)", first ? "" : ", ", part.what, in_words(part.seconds),
                        100 * part.seconds / p.step);
    first = false;
  }
  const Part* most = std::ranges::max_element(all, {}, &Part::seconds);
  // What somebody can do something about: the greatest of the waits, where it is more than a twentieth.
  const Part* wait = std::max_element(all + 1, std::end(all),
                                      [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  if (wait->seconds > 0.05 * p.step) most = wait;
  if (!most->why.empty()) text += fmt::format(": {}", most->why);
  return text + ".";
}

}  // namespace talweg::train
