#include "wire/signature.h"

#include <fmt/format.h>

#include "base/collectives.h"

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
  if (!moves_data(s.op)) return fmt::format("{}()", name(s.op));
  std::string text = fmt::format("{}(", name(s.op));
  if (facts(s.op).reduces) text += fmt::format("{}, ", name(s.reduction));
  text += fmt::format("{}, {} elements", name(s.type), s.count);
  if (facts(s.op).rooted) text += fmt::format(", root {}", s.root);
  if (s.layout != 0) text += fmt::format(", counts digest {:08x}", static_cast<std::uint32_t>(s.layout));
  return text + ")";
}

}  // namespace talweg::wire
