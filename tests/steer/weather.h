// Rates of eight hosts that change every 5 s for a quarter of an hour, drawn from a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "cloud_rates.h"

namespace talweg::steer {

constexpr std::size_t kWeatherHosts = 8;
constexpr std::size_t kWeatherSamples = 180;

constexpr double kHuaweiUsual = 14.6e9;

using Rates = std::array<double, kWeatherHosts>;  // bit/s, the same in both directions

struct Weather {
  double said = 0;  // what each host was said to have
  std::vector<Rates> samples = std::vector<Rates>(kWeatherSamples);
  std::vector<Rates> lasting =
      std::vector<Rates>(kWeatherSamples);  // the same without what is over after one sample
  const Rates& at(double seconds) const {
    return samples[std::min(static_cast<std::size_t>(seconds / kCloudSampleSeconds), kWeatherSamples - 1)];
  }
};

inline std::size_t any_of(Random& luck, std::size_t n) {
  return static_cast<std::size_t>(static_cast<double>(n) * luck.uniform());
}

// EC2 takes the bursts back, one host after the other.
inline Weather bursts_end(std::uint64_t seed) {
  Random luck{seed};
  std::array<std::size_t, kWeatherHosts> cliff{};
  for (std::size_t& sample : cliff) sample = any_of(luck, kWeatherSamples);
  Weather w{kEc2Burst};
  for (std::size_t h = 0; h < kWeatherHosts; ++h)
    for (std::size_t s = 0; s < 2 * kWeatherSamples; ++s) {
      const bool blip = luck.uniform() < 1 / kEc2BlipEvery;
      if (s >= kWeatherSamples) continue;
      w.lasting[s][h] = s < cliff[h] ? kEc2Burst : kEc2Base;
      w.samples[s][h] = s >= cliff[h] && blip ? kEc2Blip : w.lasting[s][h];
    }
  return w;
}

// EC2 throttles to a seventh.
inline Weather throttled(std::uint64_t seed) {
  Random luck{seed};
  Weather w{kEc2SpreadBurst};
  for (std::size_t h = 0; h < kWeatherHosts; ++h) {
    const std::size_t cliff = any_of(luck, kWeatherSamples);
    for (std::size_t s = 0; s < kWeatherSamples; ++s)
      w.samples[s][h] = s < cliff ? kEc2SpreadBurst : s == cliff ? kEc2SpreadEdge : kEc2SpreadBase;
  }
  w.lasting = w.samples;
  return w;
}

// The Huawei trace, from another place for each host.
inline Weather huawei(std::uint64_t seed) {
  Random luck{seed};
  Weather w{kHuaweiUsual};
  for (Rates& rates : w.lasting) rates.fill(kHuaweiUsual);
  for (std::size_t h = 0; h < kWeatherHosts; ++h) {
    const std::size_t begin = any_of(luck, kHuawei.size());
    for (std::size_t s = 0; s < kWeatherSamples; ++s)
      w.samples[s][h] = 1e9 * kHuawei[(begin + s) % kHuawei.size()];
  }
  return w;
}

// Each rate any of those of the Huawei trace, whatever the one before.
inline Weather huawei_shuffled(std::uint64_t seed) {
  Random luck{seed};
  Weather w{kHuaweiUsual};
  for (Rates& rates : w.lasting) rates.fill(kHuaweiUsual);
  for (Rates& rates : w.samples)
    for (double& rate : rates) rate = 1e9 * kHuawei[any_of(luck, kHuawei.size())];
  return w;
}

// Harsher than any of these traces: rates that fall and rise by half within minutes, each host by its own
// luck.
inline Weather come_and_go(std::uint64_t seed) {
  Random luck{seed};
  Weather w{kEc2Burst};
  Rates rates{};
  rates.fill(kEc2Burst);
  for (std::size_t s = 0; s < kWeatherSamples; ++s)
    for (std::size_t h = 0; h < kWeatherHosts; ++h) {
      const double draw = luck.uniform();
      if (draw < 0.008) rates[h] = kEc2Burst;
      if (draw > 0.992) rates[h] = kEc2Base;
      w.lasting[s][h] = rates[h];
      w.samples[s][h] = draw > 0.5 && draw < 0.51 ? 3.77e9 : rates[h];
    }
  return w;
}

// Two of the hosts, one after the other, lose two thirds of their rate again and again, for a quarter of a
// minute on average, and have it for as long in between.
inline Weather flapping(std::uint64_t seed) {
  Random luck{seed};
  Weather w{kEc2Burst};
  for (std::size_t h = 0; h < kWeatherHosts; ++h) {
    bool down = false;
    for (std::size_t s = 0; s < kWeatherSamples; ++s) {
      const bool flaps = h < 2 && s >= (h + 1) * 12;
      if (luck.uniform() < 1. / 3) down = !down;
      w.lasting[s][h] = flaps ? kEc2Burst / 3 : kEc2Burst;
      w.samples[s][h] = flaps && down ? kEc2Burst / 3 : kEc2Burst;
    }
  }
  return w;
}

}  // namespace talweg::steer
