#include "gradients.h"

#include <array>
#include <span>
#include <utility>

#include "types.h"

namespace talweg::torch_face {
namespace {

const at::Tensor& checked(const char* what, const at::Tensor& tensor, at::ScalarType type,
                          std::size_t count) {
  check_value(tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
              "talweg: ", what, " must be a contiguous tensor on the CPU");
  check_type(tensor.scalar_type() == type, "talweg: ", what, " must be ", type, ", not ",
             tensor.scalar_type());
  check_value(static_cast<std::size_t>(tensor.numel()) == count, "talweg: ", what, " must have ", count,
              " elements, not ", tensor.numel());
  return tensor;
}

const float* gradients_of(const at::Tensor& tensor, std::size_t count) {
  return checked("the gradients", tensor, at::kFloat, count).const_data_ptr<float>();
}

float* residual_of(const std::optional<at::Tensor>& tensor, std::size_t count) {
  if (!tensor) return nullptr;
  return checked("the residual", *tensor, at::kFloat, count).mutable_data_ptr<float>();
}

at::Tensor bytes_of(std::size_t count) {
  return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(at::kByte));
}

std::byte* begin_of(at::Tensor& bytes) {
  return reinterpret_cast<std::byte*>(bytes.mutable_data_ptr<std::uint8_t>());
}

const std::byte* encoded_of(const char* what, const at::Tensor& tensor, std::size_t count) {
  return reinterpret_cast<const std::byte*>(
      checked(what, tensor, at::kByte, count).const_data_ptr<std::uint8_t>());
}

kernel::Code code_named(const std::string& name) {
  constexpr std::pair<const char*, kernel::Code> kCodes[] = {{"f32", kernel::Code::f32},
                                                             {"f16", kernel::Code::f16},
                                                             {"bf16", kernel::Code::bf16},
                                                             {"int8", kernel::Code::int8},
                                                             {"int4", kernel::Code::int4}};
  for (const auto& [known, code] : kCodes)
    if (name == known) return code;
  throw CallError(CallError::Kind::value,
                  c10::str("talweg: gradients are f32, f16, bf16, int8 or int4, not ", name));
}

std::vector<steer::GradientParameter> parameters_of(const std::vector<std::size_t>& counts,
                                                    const std::vector<std::uint64_t>& numbers) {
  check_value(counts.size() == numbers.size(), "talweg: ", counts.size(), " parameters have ", numbers.size(),
              " numbers");
  std::vector<steer::GradientParameter> parameters;
  for (std::size_t i = 0; i < counts.size(); ++i) parameters.push_back({counts[i], numbers[i]});
  return parameters;
}

int checked_rank(int rank, int ranks) {
  check_value(rank >= 0 && rank < ranks, "talweg: there is no rank ", rank, " among ", ranks);
  return rank;
}

steer::GradientRounding rounding_for(Shards::Seed seed, std::uint64_t step) {
  return {seed.has_value(), seed.value_or(0), step};
}

at::Tensor words_of(const steer::GradientRows::Chosen& chosen) {
  at::Tensor words = at::empty({static_cast<int64_t>(chosen.size())}, at::TensorOptions(at::kInt));
  std::copy(chosen.begin(), chosen.end(), reinterpret_cast<std::uint32_t*>(words.mutable_data_ptr<int>()));
  return words;
}

std::span<const std::uint32_t> as_words(const char* what, const at::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  checked(what, tensor, at::kInt, count);
  return {reinterpret_cast<const std::uint32_t*>(tensor.const_data_ptr<int>()), count};
}

}  // namespace

Shards::Shards(const std::vector<std::size_t>& counts, const std::vector<std::uint64_t>& numbers, int ranks,
               const std::string& code, std::uint32_t block)
    : parameters_(counts.size()), ranks_(ranks), shards_([&] {
        check_value(ranks > 0, "talweg: gradients are averaged over one rank or more, not ", ranks);
        return with_torch_errors([&] {
          return steer::GradientShards(parameters_of(counts, numbers), ranks, {code_named(code), block});
        });
      }()) {}

std::vector<std::size_t> Shards::bytes() const {
  std::vector<std::size_t> bytes;
  for (int rank = 0; rank < ranks_; ++rank) bytes.push_back(shards_.bytes(rank));
  return bytes;
}

std::vector<std::size_t> Shards::shard_counts(int rank) const {
  checked_rank(rank, ranks_);
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < parameters_; ++i) counts.push_back(shards_.shard_count(rank, i));
  return counts;
}

at::Tensor Shards::encode(int rank, const at::Tensor& gradients, const std::optional<at::Tensor>& residual,
                          Seed seed, std::uint64_t step) const {
  at::Tensor out = bytes_of(shards_.total_bytes());
  shards_.encode(checked_rank(rank, ranks_), gradients_of(gradients, shards_.count()),
                 residual_of(residual, shards_.count()), rounding_for(seed, step), begin_of(out));
  return out;
}

at::Tensor Shards::sum(int rank, const at::Tensor& received, const std::optional<at::Tensor>& residual,
                       Seed seed, std::uint64_t step) const {
  const std::size_t bytes = shards_.bytes(checked_rank(rank, ranks_));
  at::Tensor out = bytes_of(bytes);
  shards_.sum(rank, encoded_of("what was received", received, bytes * static_cast<std::size_t>(ranks_)),
              residual_of(residual, shards_.shard_count(rank)), rounding_for(seed, step), begin_of(out));
  return out;
}

void Shards::decode(const at::Tensor& gathered, at::Tensor out) const {
  checked("the output", out, at::kFloat, shards_.count());
  shards_.decode(encoded_of("what was gathered", gathered, shards_.total_bytes()),
                 out.mutable_data_ptr<float>());
}

Rows::Rows(const std::vector<std::size_t>& counts, std::size_t width)
    : parameters_(counts.size()),
      rows_(with_torch_errors([&] { return steer::GradientRows(counts, width); })) {}

at::Tensor Rows::top(const at::Tensor& gradients, double ratio) const {
  return words_of(rows_.top(gradients_of(gradients, rows_.count()), ratio));
}

at::Tensor Rows::at_least(const at::Tensor& gradients, double least) const {
  return words_of(rows_.at_least(gradients_of(gradients, rows_.count()), static_cast<float>(least)));
}

at::Tensor Rows::random(double ratio, std::uint64_t seed, const std::vector<std::uint64_t>& numbers) const {
  check_value(numbers.size() == parameters_, "talweg: ", parameters_, " parameters have ", numbers.size(),
              " numbers");
  return words_of(rows_.random(ratio, seed, numbers));
}

std::size_t Rows::packed_words(const at::Tensor& chosen) const {
  return rows_.packed_words(as_words("the chosen rows", chosen));
}

at::Tensor Rows::pack(const at::Tensor& gradients, const at::Tensor& chosen,
                      const std::optional<at::Tensor>& residual) const {
  const auto rows = as_words("the chosen rows", chosen);
  at::Tensor payload =
      at::empty({static_cast<int64_t>(rows_.packed_words(rows))}, at::TensorOptions(at::kInt));
  rows_.pack(gradients_of(gradients, rows_.count()), rows, residual_of(residual, rows_.count()),
             reinterpret_cast<std::uint32_t*>(payload.mutable_data_ptr<int>()));
  return payload;
}

void Rows::add(const at::Tensor& payload, at::Tensor sums) const {
  checked("the sums", sums, at::kFloat, rows_.count());
  with_torch_errors([&] { rows_.add(as_words("the payload", payload), sums.mutable_data_ptr<float>()); });
}

}  // namespace talweg::torch_face
