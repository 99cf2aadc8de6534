#include "wire/signature.h"

#include <fmt/format.h>

namespace talweg::wire {

std::uint64_t layout_digest(const std::int64_t* counts, std::size_t n) {
  std::uint64_t digest =
      0xcbf29ce484222325ULL;  // FNV-1a over the counts' words, finished by a multiply-xorshift
  for (std::size_t i = 0; i < n; ++i) {
    digest = (digest ^ static_cast<std::uint64_t>(counts[i])) * 0x100000001b3ULL;
    digest ^= digest >> 29;
  }
  return digest;
}

std::string to_string(const Signature& s) {
  const bool reduces =
      s.op == Collective::all_reduce || s.op == Collective::reduce || s.op == Collective::reduce_scatter;
  const bool rooted = s.op == Collective::reduce || s.op == Collective::broadcast ||
                      s.op == Collective::gather || s.op == Collective::scatter;
  if (s.op == Collective::barrier) return "barrier()";
  std::string text = fmt::format("{}(", name(s.op));
  if (reduces) text += fmt::format("{}, ", name(s.reduction));
  text += fmt::format("{}, {} elements", name(s.type), s.count);
  if (rooted) text += fmt::format(", root {}", s.root);
  if (s.layout != 0) text += fmt::format(", counts digest {:08x}", static_cast<std::uint32_t>(s.layout));
  if (s.plan != 0) text += fmt::format(", plan {:08x}", s.plan);
  return text + ")";
}

}  // namespace talweg::wire
