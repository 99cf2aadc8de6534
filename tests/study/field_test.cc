#include "study/field.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "study/plan_request.h"
#include "study/simulate_request.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

std::string refusal(const char* name, const std::string& text) {
  SimulateRequest request;
  try {
    set(request, *field_called(simulate_fields(), name), text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Field, IsSetByItsNameAndSaysWhatItHolds) {
  SimulateRequest request;
  const auto fields = simulate_fields();
  for (const auto& [name, text] : {std::pair{"iters", "7"},
                                   {"seed", "18446744073709551615"},
                                   {"loss", "0.25"},
                                   {"op", "broadcast"},
                                   {"trim", "true"},
                                   {"class-limits", "1K,2K"}}) {
    set(request, *field_called(fields, name), text);
    EXPECT_EQ(value_of(request, *field_called(fields, name)), text);
  }
  EXPECT_EQ(request.iters, 7);
  EXPECT_EQ(request.seed, 18446744073709551615ULL);
  EXPECT_TRUE(request.trim);
  set(request, *field_called(fields, "fail"), "a@1ms");
  set(request, *field_called(fields, "fail"), "b@2ms");
  EXPECT_THAT(request.fail, testing::ElementsAre("a@1ms", "b@2ms"));
  EXPECT_EQ(field_called(fields, "no-such"), nullptr);
}

TEST(Field, WhatItCannotBeIsRefusedByName) {
  EXPECT_EQ(refusal("iters", "0"), "--iters: expected a whole number from 1 to 1048576, got \"0\"");
  EXPECT_EQ(refusal("iters", "010"), "--iters: expected a whole number from 1 to 1048576, got \"010\"");
  EXPECT_EQ(refusal("loss", "nan"), "--loss: expected a number from 0 to 1, got \"nan\"");
  EXPECT_EQ(refusal("processors", "ideal,tcp"), "--processors: expected one of ideal,tcp, got \"ideal,tcp\"");
  EXPECT_EQ(refusal("seed", "18446744073709551616"),
            "--seed: expected a whole number from 0 to 18446744073709551615, got \"18446744073709551616\"");
}

template <class Request>
void expect_one_of_each(std::span<const Field<Request>> fields) {
  std::set<std::string> names;
  for (const auto& field : fields) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_NE(std::string(field.help), "") << field.name;
    const std::string value = value_of(Request{}, field);
    if (!value.empty()) {
      EXPECT_EQ(field.complaint(value), "") << "the default of " << field.name;
    }
  }
}

TEST(Field, NamesDifferAndDefaultsAreAllowed) {
  expect_one_of_each(simulate_fields());
  expect_one_of_each(plan_fields());
}

}  // namespace
}  // namespace talweg::study
