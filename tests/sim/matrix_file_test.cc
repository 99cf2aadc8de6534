#include "sim/matrix_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::HasSubstr;

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "";
}

TEST(HtsimMatrix, IsRead) {
  const Matrix m =
      parse_matrix("Nodes 4\nConnections 2\n0->1 id 7 start 5 size 100\n2->3 size 9 prio 2\n", "m");
  ASSERT_EQ(m.connections.size(), 2U);
  EXPECT_EQ(m.nodes, 4);
  EXPECT_EQ(m.connections[0].id, 7);
  EXPECT_EQ(m.connections[0].start, 5);
  EXPECT_EQ(m.connections[0].bytes, 100);
  EXPECT_EQ(m.connections[1].from, 2);
  EXPECT_EQ(m.connections[1].to, 3);
  EXPECT_EQ(m.connections[1].priority, 2);
}

TEST(HtsimMatrix, WhatIsWrongIsNamedWithItsLine) {
  const auto text = [](const std::string& lines) {
    return message([&] { parse_matrix("Nodes 4\n" + lines, "m.cm"); });
  };
  EXPECT_THAT(text("0->9 size 1\n"), HasSubstr("m.cm:2: there is no host 9: Nodes 4"));
  EXPECT_THAT(text("1->1 size 1\n"), HasSubstr("m.cm:2: 1->1 to itself"));
  EXPECT_THAT(text("0->1 id 3\n"), HasSubstr("m.cm:2: a connection without a size"));
  EXPECT_THAT(text("0->1 size -3\n"), HasSubstr("got \"-3\""));
  EXPECT_THAT(text("0->1 size 9000000000000000000\n"),
              HasSubstr("m.cm:2: expected a number of bytes from 1 to 137438953472, got \"9000"));
  EXPECT_THAT(text("0->1 size 1 start 9000000000000000000\n"), HasSubstr("expected a time in ps from 0 to"));
  EXPECT_THAT(text("4294967296->1 size 1\n"), HasSubstr("expected a host from 0 to 2147483647"));
  EXPECT_THAT(text("0->1 size 1 speed 3\n"), HasSubstr("\"speed\" is not known here"));
  EXPECT_THAT(text("Connections 3\n0->1 size 1\n"), HasSubstr("3 connections were announced, 1 came"));
  EXPECT_THAT(text("0->1 size 1 trigger 4\n"), HasSubstr("trigger 4 is not defined"));
  EXPECT_THAT(text("hello\n"), HasSubstr("got \"hello\""));
  EXPECT_THAT(text("Connections 0\n"), HasSubstr("m.cm:2: expected at least one connection"));
  EXPECT_THAT(message([] { parse_matrix("", "m.cm"); }),
              HasSubstr("m.cm:1: expected at least one connection"));
}

}  // namespace
}  // namespace talweg::sim
