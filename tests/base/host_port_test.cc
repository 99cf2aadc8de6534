#include "base/host_port.h"

#include <gmock/gmock.h>

namespace talweg {
namespace {

TEST(HostPort, IsAHostAndAPortInDigits) {
  const auto place = parse_host_port("10.0.0.9:4711");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->host, "10.0.0.9");
  EXPECT_EQ(place->port, 4711);
  EXPECT_EQ(parse_host_port("node0:65535")->port, 65535);
  EXPECT_EQ(parse_host_port("node0:0", 0)->port, 0);
}

TEST(HostPort, IsNothingElse) {
  for (const char* text :
       {"", ":", "4711", ":4711", "a:", "a:b", "a:1b", "a: 1", "a:+1", "a:-1", "a:0", "a:65536",
        "a:99999999999999999999", "a:1 ", " a:1", "a b:1", "a\n:1", "a\x1b[2J:1", "\xc3\xa4:1"})
    EXPECT_FALSE(parse_host_port(text)) << text;
}

}  // namespace
}  // namespace talweg
