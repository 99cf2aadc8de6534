#include "kernel/gradient_block.h"
#include "kernel/scalar.h"

namespace talweg::kernel {
namespace {

std::int32_t stored_code(Code code, const std::uint8_t* codes, std::size_t i) {
  if (code == Code::int8) return static_cast<std::int8_t>(codes[i]);
  const std::uint32_t nibble = (codes[i / 2] >> (4 * (i % 2))) & 15;
  return static_cast<std::int32_t>(nibble ^ 8) - 8;
}

void store_code(Code code, std::uint8_t* codes, std::size_t i, std::int32_t value) {
  if (code == Code::int8) {
    codes[i] = static_cast<std::uint8_t>(value);
  } else if (i % 2 == 0) {
    codes[i / 2] = static_cast<std::uint8_t>(value & 15);
  } else {
    codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | ((value & 15) << 4));
  }
}

void encode_block(GradientFormat format, const std::uint8_t* values, std::size_t count, std::uint8_t* out,
                  const Rounding& rounding) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(load<float>(values, i)));
  const float scale = scale_of(format.code, largest);
  store(out, 0, scale);
  const std::int32_t top = top_code(format.code);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = load<float>(values, i);
    std::int32_t code = 0;
    if (std::isinf(scale)) {
      code = code_beside_infinity(value, top);
    } else if (is_plain_scale(scale)) {
      code = code_of(value, 1 / scale, top, rounding, static_cast<std::uint32_t>(rounding.first + i));
    }
    store_code(format.code, out + 4, i, code);
  }
}

template <typename Half>
void encode_halves(const void* values, std::size_t count, void* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, narrow<Half>(load<float>(values, i)));
}

// Sums of one block; its decoded values are subtracted again.
void encode_part(GradientFormat format, const std::uint8_t* values, std::size_t count, std::uint8_t* out,
                 const Rounding& rounding) {
  switch (format.code) {
    case Code::f32:
      std::memcpy(out, values, 4 * count);
      break;
    case Code::f16:
      encode_halves<F16>(values, count, out);
      break;
    case Code::bf16:
      encode_halves<BF16>(values, count, out);
      break;
    case Code::int8:
    case Code::int4:
      encode_block(format, values, count, out, rounding);
  }
}

float decoded(GradientFormat format, const std::uint8_t* part, std::size_t i) {
  switch (format.code) {
    case Code::f32:
      return load<float>(part, i);
    case Code::f16:
      return widen(load<F16>(part, i));
    case Code::bf16:
      return widen(load<BF16>(part, i));
    case Code::int8:
    case Code::int4:
      break;
  }
  return value_of(stored_code(format.code, part + 4, i), load<float>(part, 0));
}

}  // namespace

void encode_scalar(GradientFormat format, const void* values, void* residual, std::size_t count, void* out,
                   Rounding rounding) {
  float sums[kLargestBlock];
  auto* to = static_cast<std::uint8_t*>(out);
  for (std::size_t i = 0; i < count; i += format.block) {
    const std::size_t n = std::min<std::size_t>(format.block, count - i);
    for (std::size_t j = 0; j < n; ++j) {
      sums[j] = load<float>(values, i + j);
      if (residual != nullptr) sums[j] += load<float>(residual, i + j);
    }
    encode_part(format, reinterpret_cast<const std::uint8_t*>(sums), n, to, rounding);
    for (std::size_t j = 0; residual != nullptr && j < n; ++j) {
      const float difference = sums[j] - decoded(format, to, j);
      if (std::isfinite(difference)) store(residual, i + j, difference);
    }
    to += encoded_bytes(format, n);
    rounding.first += n;
  }
}

void decode_scalar(GradientFormat format, const void* encoded, std::size_t count, void* out, bool add) {
  const auto* from = static_cast<const std::uint8_t*>(encoded);
  for (std::size_t i = 0; i < count; i += format.block) {
    const std::size_t n = std::min<std::size_t>(format.block, count - i);
    for (std::size_t j = 0; j < n; ++j) {
      const float value = decoded(format, from, j);
      store(out, i + j, add ? load<float>(out, i + j) + value : value);
    }
    from += encoded_bytes(format, n);
  }
}

}  // namespace talweg::kernel
