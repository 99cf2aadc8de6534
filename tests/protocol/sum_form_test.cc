// In which form a vector is summed: what ranks say of theirs, and that they choose alike, by what it costs.
#include "protocol/streaming/sum_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernel/half.h"

namespace talweg::protocol {
namespace {

using Format = wire::AggregationFormat;

template <class T>
SumTask task_of(const std::vector<T>& in, std::vector<T>& out, Format format) {
  return {reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()),
          in.size() * sizeof(T), format};
}
VectorSample look_into(const std::vector<float>& data, std::size_t block, std::uint64_t seed = 1,
                       Format format = Format::f32) {
  return look_at(reinterpret_cast<const std::byte*>(data.data()), data.size() * sizeof(float), format, block,
                 seed);
}

TEST(SumForm, OfFewBlocksAllAreLookedAt) {
  // 25 blocks of 100 and one of 37.
  std::vector<float> data(2537);
  EXPECT_EQ(look_into(data, 100).held.blocks, 0);
  EXPECT_EQ(look_into(data, 100).held.elements, 0);
  data[5] = -0.0F;
  EXPECT_EQ(look_into(data, 100).held.blocks, 0) << "zero of either sign is zero";
  data[99] = 1;
  data[100] = std::numeric_limits<float>::quiet_NaN();
  data[2536] = std::numeric_limits<float>::denorm_min();
  for (const Format format : {Format::f32, Format::scaled}) {
    const Held held = look_into(data, 100, 7, format).held;
    EXPECT_DOUBLE_EQ(held.blocks, 3 / 26.0);
    EXPECT_DOUBLE_EQ(held.elements, 3 / 2537.0);
  }
  std::vector<std::uint16_t> halves(1000);
  halves[500] = kernel::f32_to_f16(1);
  halves[900] = kernel::f32_to_f16(-0.0F);
  const Held held =
      look_at(reinterpret_cast<const std::byte*>(halves.data()), 2000, Format::f16, 100, 1).held;
  EXPECT_DOUBLE_EQ(held.blocks, 0.1);
  EXPECT_DOUBLE_EQ(held.elements, 0.1) << "of two bytes only blocks count";
}

TEST(SumForm, OfManyBlocksASampleIsAndTheSameOneAgain) {
  constexpr std::size_t kCount = 3'000'001, kBlock = 64;
  for (const double density : {0.001, 0.02, 0.3, 0.9}) {
    Random random(7, static_cast<std::uint64_t>(density * 1000));
    std::vector<float> data(kCount);
    for (float& x : data) x = random.uniform() < density ? 1.0F : 0.0F;
    const double of_blocks = 1 - std::pow(1 - density, kBlock);
    double blocks = 0, elements = 0;
    constexpr int kLooks = 50;
    for (std::uint64_t seed = 0; seed < kLooks; ++seed) {
      const VectorSample sample = look_into(data, kBlock, seed);
      EXPECT_EQ(sample.seed, seed);
      EXPECT_NEAR(sample.held.blocks, of_blocks, 4.5 * std::sqrt(of_blocks * (1 - of_blocks) / 256));
      EXPECT_EQ(look_into(data, kBlock, seed).held.elements, sample.held.elements);
      blocks += sample.held.blocks / kLooks;
      elements += sample.held.elements / kLooks;
    }
    EXPECT_NEAR(elements, density, 5 * std::sqrt(density / (256.0 * kBlock * kLooks)));
    EXPECT_NEAR(blocks, of_blocks, 1e-9 + 5 * std::sqrt(of_blocks * (1 - of_blocks) / (256 * kLooks)));
  }
}

// Ranks with vectors of their own, which a memory sums.
struct Ranks {
  explicit Ranks(int ranks, std::size_t count = 65'536)
      : choosers(static_cast<std::size_t>(ranks), FormChooser(ranks)), out(count) {
    in.assign(static_cast<std::size_t>(ranks), std::vector<float>(count));
  }
  // One sum: what it is taken for.
  FormChooser::Choice sum(const FormChooser::Seconds& seconds,
                          double trees_seconds = std::numeric_limits<double>::infinity(),
                          Format format = Format::f32) {
    std::vector<std::uint32_t> words;
    std::vector<VectorSample> samples;
    for (std::size_t r = 0; r < in.size(); ++r) {
      samples.push_back(choosers[r].look(task_of(in[r], out, format), 256));
      words.push_back(choosers[r].word(task_of(in[r], out, format), samples.back()));
    }
    FormChooser::Choice choice;
    for (std::size_t r = 0; r < in.size(); ++r) {
      const auto own = choosers[r].choose(task_of(in[r], out, format), words, seconds, trees_seconds);
      if (r == 0) choice = own;
      EXPECT_EQ(own.form, choice.form);
      EXPECT_EQ(own.held.elements, choice.held.elements);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = 0;
      for (const auto& vector : in) out[i] += vector[i];
    }
    for (std::size_t r = 0; r < in.size(); ++r) choosers[r].learn(task_of(in[r], out, format), samples[r]);
    return choice;
  }
  void fill(std::size_t rank, double density, std::uint64_t seed) {
    Random random(seed);
    for (float& x : in[rank]) x = random.uniform() < density ? 1.0F : 0.0F;
  }
  std::vector<FormChooser> choosers;
  std::vector<std::vector<float>> in;
  std::vector<float> out;
};

// By bytes alone.
double by_bytes(SumForm form, const Held& held) {
  if (form == SumForm::dense) return 4;
  return form == SumForm::blocks ? 4 * held.blocks : 6 * held.elements;
}

TEST(SumForm, WhatIsOnAnyRankIsLearntFromSums) {
  constexpr double kOwn = 0.3;
  for (const int ranks : {2, 5})
    for (const bool all_alike : {false, true}) {
      Ranks with(ranks);
      for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) with.fill(r, kOwn, all_alike ? 1 : r);
      const double independent = 1 - std::pow(1 - kOwn, ranks);
      EXPECT_NEAR(with.sum(by_bytes).held.elements, independent, 0.02);
      for (int again = 0; again < 3; ++again)
        EXPECT_NEAR(with.sum(by_bytes).held.elements, all_alike ? kOwn : independent, 0.02);
      // It has another one of the same length, of which each has a tenth.
      for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
        with.fill(r, kOwn / 10, all_alike ? 2 : 100 + r);
      EXPECT_NEAR(with.sum(by_bytes).held.elements, (all_alike ? kOwn : independent) / 10, 0.02);
    }
}

TEST(SumForm, TheQuickestIsTakenAndOnlyForABetterOneLeft) {
  Ranks with(2);
  const auto form_of = [&](double density, double trees = std::numeric_limits<double>::infinity()) {
    for (std::size_t r : {0U, 1U}) with.fill(r, density, 3);  // alike
    return with.sum(by_bytes, trees).form;
  };
  EXPECT_EQ(form_of(1), SumForm::dense);
  EXPECT_EQ(form_of(0.1), SumForm::pairs);
  // Six bytes a pair: 0.65 of the elements as pairs take 3.9, dense 4.
  EXPECT_EQ(form_of(0.65), SumForm::pairs);
  EXPECT_EQ(form_of(1), SumForm::dense);
  EXPECT_EQ(form_of(0.65), SumForm::dense);
  EXPECT_EQ(form_of(0.3), SumForm::pairs);
  EXPECT_EQ(form_of(0.3, 1), std::nullopt);
  EXPECT_EQ(form_of(0.16, 1), std::nullopt) << "0.96 is not so much better than 1";
  EXPECT_EQ(form_of(0.1, 1), SumForm::pairs);
  std::ranges::fill(with.in[0], 0.0F);
  std::fill_n(with.in[0].begin(), 10'000, 1.0F);
  with.in[1] = with.in[0];
  EXPECT_EQ(with.sum(by_bytes).form, SumForm::blocks) << "4 times 0.16, and 6 times 0.15";
  using ::testing::ElementsAre;
  EXPECT_THAT(with.choosers[0].chosen(), ElementsAre(3, 1, 4, 2));
  EXPECT_EQ(with.choosers[1].chosen(), with.choosers[0].chosen());
}

TEST(SumForm, WhoHasNothingDoesNotHideWhatOthersHave) {
  Ranks with(3);
  with.fill(1, 1, 1);
  for (int again = 0; again < 3; ++again) {
    const FormChooser::Choice choice = with.sum(by_bytes);
    EXPECT_EQ(choice.form, SumForm::dense);
    EXPECT_EQ(choice.held.elements, 1);
  }
  with.fill(1, 0, 1);
  const FormChooser::Choice none = with.sum(by_bytes);
  EXPECT_EQ(none.form, SumForm::blocks);
  EXPECT_EQ(none.held.blocks, 0);
}

TEST(SumForm, LittleIsNotNothing) {
  Ranks with(2, 4'000'000);
  for (std::size_t i = 0; i < 4'000'000; i += 20'000) with.in[0][i] = 1;
  double most = 0;
  for (int again = 0; again < 5; ++again) most = std::max(most, with.sum(by_bytes).held.elements);
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 0.01);
  // Less than there is room for in a word.
  FormChooser chooser(2);
  const SumTask task = task_of(with.in[0], with.out, Format::f32);
  const std::uint32_t word = chooser.word(task, {256, 1, {1e-8, 1e-9}});
  const FormChooser::Choice choice = chooser.choose(task, std::vector{word, word}, by_bytes, 9);
  EXPECT_GT(choice.held.blocks, 0);
  EXPECT_GT(choice.held.elements, 0);
}

// What one of them has chosen last another one has not, as its memory of it went: they choose alike, by what
// is quickest.
TEST(SumForm, WhereTheyRememberDifferentThingsTheyChooseAlike) {
  Ranks with(2);
  for (std::size_t r : {0U, 1U}) with.fill(r, 0.1, 3);
  EXPECT_EQ(with.sum(by_bytes).form, SumForm::pairs);
  with.choosers[1] = FormChooser(2);
  for (std::size_t r : {0U, 1U}) with.fill(r, 0.68, 3);
  EXPECT_EQ(with.sum(by_bytes).form, SumForm::dense);
}

TEST(SumForm, OtherLengthsAndFormatsAreRememberedByThemselvesAndNotForEver) {
  Ranks with(2);
  const double never = std::numeric_limits<double>::infinity();
  const auto no_pairs = [&](SumForm form, const Held& held) {
    return form == SumForm::pairs ? never : by_bytes(form, held);
  };
  for (std::size_t r : {0U, 1U}) with.fill(r, 0.68, 3);
  EXPECT_EQ(with.sum(by_bytes, never).form, SumForm::dense);
  for (std::size_t r : {0U, 1U}) with.fill(r, 0.1, 3);
  EXPECT_EQ(with.sum(no_pairs, never, Format::scaled).form, SumForm::dense);
  EXPECT_EQ(with.sum(by_bytes, never).form, SumForm::pairs);
  for (std::size_t r : {0U, 1U}) with.fill(r, 0.7, 3);
  EXPECT_EQ(with.sum(by_bytes, never).form, SumForm::pairs) << "4.2 is not so much worse than 4";
  // Of very many other lengths nothing of it is left.
  std::vector<float> other(2000);
  for (std::size_t length = 1; length <= 1100; ++length)
    for (FormChooser& chooser : with.choosers) {
      const SumTask task{reinterpret_cast<const std::byte*>(other.data()),
                         reinterpret_cast<std::byte*>(other.data()), length * 4, Format::f32};
      const std::uint32_t word = chooser.word(task, chooser.look(task, 64));
      chooser.choose(task, std::vector{word, word}, by_bytes, never);
    }
  EXPECT_EQ(with.sum(by_bytes, never).form, SumForm::dense);
}

// Whatever others send: a choice, and no other.
TEST(SumForm, AnyWordsGiveAChoice) {
  Random random(5);
  std::vector<float> data(1024);
  for (int i = 0; i < 20'000; ++i) {
    FormChooser one(3), other(3);
    std::vector words{static_cast<std::uint32_t>(random.next()), static_cast<std::uint32_t>(random.next()),
                      static_cast<std::uint32_t>(random.next())};
    if (i % 2 == 0)  // all say that the same was chosen last
      for (std::uint32_t& word : words) word = (word & 0x1fffffff) | (words[0] & 0xe0000000);
    other.choose(task_of(data, data, Format::f32), std::vector{words[1]}, by_bytes, 0);
    const SumTask task = task_of(data, data, Format::f32);
    const double trees = random.uniform() * 5;
    const FormChooser::Choice choice = one.choose(task, words, by_bytes, trees);
    EXPECT_EQ(choice.form, other.choose(task, words, by_bytes, trees).form);
    EXPECT_LE(choice.held.blocks, 1);
    EXPECT_LE(choice.form ? by_bytes(*choice.form, choice.held) : trees, trees * FormChooser::kBetter);
  }
}

}  // namespace
}  // namespace talweg::protocol
