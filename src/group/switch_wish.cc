#include "group/switch_wish.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/settings.h"
#include "live/join/interface.h"
#include "live/join/job_key.h"
#include "wire/key.h"

namespace talweg::group {

namespace {

constexpr const char* kSetting = "TALWEG_SWITCH";

live::Endpoint endpoint_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || rest != end || port > 65535) port = 0;
  }
  if (port < 1)
    refuse("{}: expected an address and a port, such as 10.0.0.9:4711, got \"{}\"", kSetting, text);
  return {live::resolve_host(text.substr(0, colon)), port};
}

}  // namespace

NamedAlgorithms take_apart(const std::string& algorithm) {
  NamedAlgorithms named;
  for (std::size_t begin = 0; begin < algorithm.size();) {
    const std::size_t end = std::min(algorithm.find(';', begin), algorithm.size());
    const std::string part = algorithm.substr(begin, end - begin);
    begin = end + 1;
    if (part == "switch" || part == "all_reduce:switch") {
      named.by_switch = true;
      continue;
    }
    const bool for_all = !part.empty() && part.find(':') == std::string::npos;
    named.reduces_by = named.reduces_by || for_all || part.starts_with("all_reduce:");
    named.trees += (named.trees.empty() ? "" : ";") + part;
  }
  return named;
}

SwitchWish find_switch_wish(const GroupOptions& options, const NamedAlgorithms& named) {
  const ResolvedSetting address = resolve(kSetting, options.switch_address);
  if (address.value.empty()) {
    if (named.by_switch) refuse("TALWEG_ALGO: switch needs {}, the switch's address and port", kSetting);
    return {};
  }
  SwitchWish wish;
  wish.always = named.by_switch;
  wish.wanted = wish.always || !named.reduces_by;
  wish.address = endpoint_of(address.value);
  wish.exact = switch_of("TALWEG_SWITCH_EXACT");
  wish.sparse = switch_of("TALWEG_SWITCH_SPARSE");
  wish.from = fmt::format("{} ({})", address.value, name(address.origin));
  constexpr const char* kKeySetting = "TALWEG_SWITCH_KEY_FILE";
  const ResolvedSetting key = resolve(kKeySetting, options.switch_key_file);
  if (!key.value.empty())
    wish.key = wire::secret_from_text(live::read_job_key(kKeySetting, key.value).text);
  else if (!live::is_loopback(wish.address.host))
    refuse("{}: a switch that is not on loopback has a key: name its file in {}", kSetting, kKeySetting);
  if (switch_of("TALWEG_ENCRYPT") && !live::is_loopback(wish.address.host))
    refuse("{}: what goes to a switch is authenticated and not encrypted, as TALWEG_ENCRYPT asks for",
           kSetting);
  return wish;
}

}  // namespace talweg::group
